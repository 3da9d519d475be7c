"""Capture files: pcap and pcapng to frames."""
