"""Behind ``npucall_client.torch.check``: the gradients of a torch module, by a device and by torch.

``module_calls`` finds the calls that a module makes, ``checking`` judges their gradients.
"""
