"""The normative statements that a wire shows, and how connections end."""
