"""The truth of a sweep on its storage, and who may write it. Loads without torch."""
