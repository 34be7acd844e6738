# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""libqattn's rows of the table as candidates of compare_torch.py.

The environment variables that choose a row are read once by a library, so each row gets a copy of the library's file
(a file of its own is a library of its own to the loader) and an instance of the binding, examples/python/qattn.py.
"""
import importlib.util
import os
import re
import shutil
import tempfile

BINDING = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "python", "qattn.py")
ROWS = {                       # name: environment of its library
    "qattn": {},               # as the library chooses
    "sm80": {"QATTN_MAX_ARCH": "80"},
    "simt": {"QATTN_IMPL": "cuda.simt"},
}
CHOICES = ("QATTN_MAX_ARCH", "QATTN_IMPL")


def load_binding(name):
    spec = importlib.util.spec_from_file_location(f"qattn_{name}", BINDING)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library_path():
    """The file of the library that the binding finds."""
    name = load_binding("finder").library()._name
    if os.path.exists(name):
        return name
    with open("/proc/self/maps", encoding="utf-8") as maps:        # found by the loader, under its soname
        return next(m.group() for line in maps if (m := re.search(r"/\S*" + re.escape(name), line)))


def load_rows(names):
    """{name: binding}"""
    path, folder, rows = library_path(), tempfile.mkdtemp(prefix="qattn-"), {}
    kept = {key: os.environ.pop(key, None) for key in (*CHOICES, "QATTN_LIBRARY")}
    try:
        for name in names:
            copy = shutil.copy(path, os.path.join(folder, f"libqattn-{name}.so"))
            os.environ.update(ROWS[name], QATTN_LIBRARY=copy)
            rows[name] = binding = load_binding(name)
            x = binding.view(None, (1, 1, 1, 8))
            try:
                binding.flash_forward_explain(x, x, x, x)          # the library reads its environment now
            except binding.QattnError:
                pass                                               # a row for CUDA alone was asked for
            for key in ROWS[name]:
                del os.environ[key]
    finally:
        shutil.rmtree(folder)                                      # what is loaded stays loaded
        os.environ.pop("QATTN_LIBRARY", None)
        os.environ.update({key: value for key, value in kept.items() if value is not None})
    return rows
