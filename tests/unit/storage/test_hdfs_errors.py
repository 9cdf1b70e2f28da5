"""Errors of the HDFS client as OSError."""

from __future__ import annotations

import errno

import pytest

from mutation_api.storage.hdfs_client import is_passing, may_be_data_nodes, os_errors
from mutation_api.storage.location import Location

PLACE = Location.parse("hdfs://host:9000/warehouse/t")


def raised(error: BaseException) -> OSError:
    """The OSError for an error of the client."""
    with pytest.raises(OSError) as caught, os_errors(PLACE):
        raise error
    assert caught.value.filename == str(PLACE)
    return caught.value


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("org.apache.hadoop.security.AccessControlException", PermissionError, errno.EACCES),
        ("org.apache.hadoop.fs.FileAlreadyExistsException", FileExistsError, errno.EEXIST),
        ("java.io.FileNotFoundException", FileNotFoundError, errno.ENOENT),
        ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", OSError, errno.EDQUOT),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", OSError, errno.EROFS),
        ("org.apache.hadoop.ipc.StandbyException", ConnectionRefusedError, errno.ECONNREFUSED),
        ("some.other.Outer$InnerException", OSError, errno.EIO),
    ],
)
def test_a_java_exception_is_known_by_its_class(text: str, kind: type[OSError], number: int) -> None:
    """The text has the class's last name and Java's first line."""
    error = raised(RuntimeError(f'RPCError("{text}", "the reason\\n\\tat a.b.C")'))
    assert (type(error), error.errno) == (kind, number)
    assert error.strerror == f"{text.rpartition('.')[2].rpartition('$')[2]}: the reason"


def test_a_name_node_that_has_just_started_is_waited_for() -> None:
    """It is in safe mode only until it knows its blocks."""
    text = "Name node is in safe mode. Safe mode will be turned off automatically in 1 seconds."
    error = raised(RuntimeError(f'RPCError("org.apache.hadoop.ipc.RetriableException", "{text}")'))
    assert is_passing(error)


@pytest.mark.parametrize(
    ("error", "number", "passing", "of_data_nodes"),
    [
        (OSError("Connection reset by peer (os error 104)"), errno.ECONNRESET, True, True),
        (OSError("Connection refused (os error 111)"), errno.ECONNREFUSED, False, True),
        (OSError("failed to lookup address information"), errno.EHOSTUNREACH, False, False),
        (OSError("unexpected end of file"), errno.ECONNABORTED, True, True),
        (RuntimeError('DataTransferError("a block")'), errno.ECONNABORTED, True, True),
        (RuntimeError("Cannot rename across different name services"), errno.EXDEV, False, False),
        (FileExistsError("it is there"), errno.EEXIST, False, False),
    ],
)
def test_what_is_no_java_exception(
    error: BaseException, number: int, passing: bool, of_data_nodes: bool
) -> None:
    """The errno comes from the text or from the class."""
    found = raised(error)
    assert (found.errno, is_passing(found), may_be_data_nodes(found)) == (number, passing, of_data_nodes)


def test_an_error_that_names_its_file_is_left_alone() -> None:
    """It is ours."""
    ours = FileNotFoundError(errno.ENOENT, "gone", str(PLACE))
    assert raised(ours) is ours


def test_a_panic_is_an_error_and_an_interrupt_is_not() -> None:
    """What is not the client's passes."""
    panic = type("PanicException", (BaseException,), {})
    assert raised(panic("at the end")).errno == errno.EIO
    with pytest.raises(KeyboardInterrupt), os_errors(PLACE):
        raise KeyboardInterrupt
