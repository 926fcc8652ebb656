"""An Ascend NPU: runs operators through CANN's two-phase C API, by ctypes."""
