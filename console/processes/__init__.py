"""The two ways in which the console runs: for the user of a kubectl context, and as a Deployment."""
