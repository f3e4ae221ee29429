"""The list of controllers and the component that starts and stops them."""
