"""What a docstring says of a function and of its parameters: NumPy, Google, Sphinx and Epydoc form.

The form is the one that describes most of the parameters that there are. Where none describes any,
the text is a description from end to end, as it was written.
"""

from __future__ import annotations

from collections.abc import Collection


def described(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a function, and of its parameters by name.

    Parameters
    ----------
    text : str
        Without its indentation (``inspect.getdoc``).
    names : collection of str
        The parameters that there are.

    Examples
    --------
    >>> described("Find a city.\\n\\nArgs:\\n    name: As on maps.", ["name"])
    ('Find a city.', {'name': 'As on maps.'})
    """
    from docstring_parser import DocstringStyle, ParseError, parse

    best: tuple[str, dict[str, str]] = (text, {})
    if not names:
        return best
    for style in (
        DocstringStyle.NUMPYDOC, DocstringStyle.GOOGLE, DocstringStyle.REST, DocstringStyle.EPYDOC,
    ):  # fmt: skip
        try:
            read = parse(text, style)
        except (ParseError, ValueError, LookupError, TypeError, AttributeError):
            continue  # it is of another form
        found = {
            name: p.description.strip()
            for p in read.params
            for name in map(str.strip, p.arg_name.split(","))
            if name in names and p.description
        }
        if len(found) > len(best[1]):
            gap = "\n\n" if read.blank_after_short_description else "\n"
            parts = (read.short_description, read.long_description)
            best = (gap.join(part for part in parts if part), found)
    return best
