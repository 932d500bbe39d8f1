"""Python in a page: the scheduler and the engine here, the JavaScript package as its hands."""

from runtime_py.pyodide.loading import prepare_in_page

__all__ = ["prepare_in_page"]
