"""What an analyst and an operator ask first, from silver."""
