"""A suite -> planned jobs -> stored results."""
