"""Widgets: a run in the notebook, steered and shown; thin views over what works without them.

``html`` draws a run as static HTML, for viewers without widgets; ``inspector`` is the live form. It
shows the same pieces, so what one sees does not depend on where one looks.
"""
