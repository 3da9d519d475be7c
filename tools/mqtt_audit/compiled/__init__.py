"""What the compiled loops work on: layouts, memory, the compiler."""
