"""Another name of tenant_server, until test_apart says it."""

from .tenant_server import TenantServer as Lab
from .tenant_server import bearer
from .tenant_server import tenant_server as lab_in

__all__ = ["Lab", "bearer", "lab_in"]
