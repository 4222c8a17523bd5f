"""What a method is: its declaration, the features its losses see, and how a run is optimised."""
