"""Tables made of the captions that several people wrote of one picture."""
