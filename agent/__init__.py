"""What runs on a GPU node: it finds, watches and cuts cards, and gives pods the ones that they were promised."""
