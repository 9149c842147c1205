"""What the product costs beside a plain reference that gives the same answers."""
