"""Stage `students`: caption writers that learn from a teacher's answers."""
