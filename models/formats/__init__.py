"""Readers and writers of profile files; none of them needs torch or numpy."""

from pipeplan.models.formats.profile_json import PROFILE_SCHEMA, dump_profile, write_profile
from pipeplan.models.formats.reader import ProfileFile, read_profile, read_profile_text

__all__ = [
    "PROFILE_SCHEMA",
    "ProfileFile",
    "dump_profile",
    "read_profile",
    "read_profile_text",
    "write_profile",
]
