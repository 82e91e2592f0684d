"""The commands of ``python -m fries_nb``, one module each; ``fries_nb.__main__`` lists them."""
