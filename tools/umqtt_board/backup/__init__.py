"""What a board holds, kept on this computer and brought back; the journal read."""
