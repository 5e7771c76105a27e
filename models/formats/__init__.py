"""Readers and writers of profile files; none of them needs torch or numpy."""

from pipeplan.models.formats.graph_txt_writer import dump_graph_txt, write_graph_txt
from pipeplan.models.formats.profile_json import PROFILE_SCHEMA, dump_profile, write_profile
from pipeplan.models.formats.reader import ProfileFile, read_profile, read_profile_text

__all__ = [
    "PROFILE_SCHEMA",
    "ProfileFile",
    "dump_graph_txt",
    "dump_profile",
    "read_profile",
    "read_profile_text",
    "write_graph_txt",
    "write_profile",
]
