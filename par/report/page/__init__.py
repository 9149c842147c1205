"""A sweep as one HTML file that needs nothing else: what its seeds show, and what they cannot say."""
