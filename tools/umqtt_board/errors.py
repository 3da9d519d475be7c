"""The one error that ends a step: a sentence that says what is wrong and what to do about it."""


class BoardError(Exception):
    """Shown to the user as it stands; the command line ends with status 2."""
