"""The tasks: group word problems, their wording, and examples as pure functions of an index."""
