"""Where tables lie, what columns they have, how their files are written, joined and read."""
