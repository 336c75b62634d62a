"""Templates to HTML. Everything that is put into a page is escaped, and a page refers to nothing outside itself."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernel_dvfs.report.page.cells import signed

_ENVIRONMENT = Environment(
    loader=PackageLoader("kernel_dvfs.report.page"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)


_ENVIRONMENT.filters["signed"] = signed


def render(template: str, **values) -> str:
    """The page that a template of `templates/` makes of these values."""
    return _ENVIRONMENT.get_template(template).render(**values)
