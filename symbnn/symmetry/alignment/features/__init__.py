"""What units are compared by: networks go in, features and similarities of their units come out."""
