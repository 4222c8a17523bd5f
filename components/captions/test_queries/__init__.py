"""The test set that a language model writes of the test split's captions, for data without paraphrases by people."""
