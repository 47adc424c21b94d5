"""The one place where peft and transformers disagree."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def peft_asks_the_old_way() -> Generator[None]:
    """peft 0.21 reads an attribute that transformers 5.2x has renamed; the warning is not about our code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
        yield
