"""Third parties' plug-ins by the dotted name of their module."""

import pytest

from autoscaler import plugins
from autoscaler.errors import ConfigError


def test_a_dotted_kind_is_the_module_of_that_name():
    assert plugins.find("sources", "live_fakes.source").__name__ == "live_fakes.source"


@pytest.mark.parametrize("kind", ["no_such.module", "live_fakes.none", ".relative", "a..b", "a."])
def test_a_dotted_kind_that_cannot_be_imported_is_refused(kind):
    with pytest.raises(ConfigError, match="policies kind: must be a module that can be imported"):
        plugins.find("policies", kind)
