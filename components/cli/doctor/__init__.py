"""The checks of `cliptune doctor`: of servers and stores, and of this machine."""
