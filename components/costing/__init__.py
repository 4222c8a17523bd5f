"""What the stages of a profile would take before one of them runs: questions, tokens, time, disk, memory, money."""
