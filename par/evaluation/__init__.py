"""What a trained model can do, by depth."""
