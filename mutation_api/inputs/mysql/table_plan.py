"""How one table is read: the source's column for each column of Hive, and the key of its rows.

Rows of a SELECT are matched with the catalog, rows of the log with the columns and the key that the table had
when they were logged. So rows before an ALTER are read by what the table was then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mutation_api.errors import InputFormatError, RecordLayoutError
from mutation_api.inputs.mysql.advice import START_OVER, Advice
from mutation_api.inputs.mysql.column_types import SourceColumn, check_target, family_of
from mutation_api.inputs.mysql.row_events import RowDecoder
from mutation_api.inputs.mysql.server import CatalogTable
from mutation_api.inputs.mysql.spill import TargetColumn
from mutation_api.inputs.mysql.table_map import LoggedTable
from mutation_api.inputs.source import SourceTable
from mutation_api.spark.quoted_name import quoted
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["Shape", "TablePlan"]


@dataclass(frozen=True)
class Shape:
    """A table between two changes of its columns.

    ``lacking``: columns of Hive, in lower case, that the source's table did not have.
    """

    decoder: RowDecoder
    columns: tuple[TargetColumn, ...]
    key_indices: tuple[int, ...]
    lacking: frozenset[str]


class TablePlan:
    """How one table is read."""

    def __init__(self, table: SourceTable, database: str, ignored: Collection[str], advice: Advice) -> None:
        """Note the columns of Hive.

        Args:
            table: the source's table, and the one that follows it.
            database: the source's database.
            ignored: columns, ``table.column`` in lower case, that only one side has.
            advice: words of messages.
        """
        self.table = table
        self.name = f"{database}.{table.name}"
        self.key: tuple[str, ...] = ()
        """The key of the rows that were read; empty before."""
        self.is_transactional = False
        self._database = database
        self._advice = advice
        self._catalog: CatalogTable | None = None
        targets = (*table.target.columns, *table.target.partition_keys)
        self._targets = [(target.name, parse_hive_type(target.type)) for target in targets]
        self._wanted = [target.name.lower() for target in targets]
        prefix = f"{table.name.lower()}."
        self._ignored = {name.removeprefix(prefix) for name in ignored if name.startswith(prefix)}

    @property
    def left_out(self) -> set[str]:
        """Columns that are ignored and do not exist in Hive."""
        return self._ignored - set(self._wanted)

    def note(self, catalog: CatalogTable | None) -> None:
        """Note what the catalog says now; None if it does not have the table."""
        self._catalog = catalog
        self.is_transactional = catalog is not None and catalog.is_transactional

    def columns_now(self) -> tuple[TargetColumn, ...]:
        """Match the catalog's columns with Hive's.

        Raises:
            RecordLayoutError: If they do not agree, or there is no key.
        """
        assert self._catalog is not None
        catalog = self._catalog
        if not catalog.keys:
            raise RecordLayoutError(
                f"source table {self.name} has no primary key, and no unique key without NULL, so "
                "its rows cannot be identified. Give it a key (ALTER TABLE … ADD PRIMARY KEY)"
            )
        sources = {column.name.lower(): column for column in catalog.columns}
        lacking = [name for name in self._wanted if name not in sources and name not in self._ignored]
        self._check_columns(sources, lacking, "")
        found = self._matched(sources, self.name)
        self._choose_key(catalog.keys, "has now")
        return found

    def select(self) -> str:
        """The statement that reads the whole table, with the columns of :meth:`columns_now`."""
        # MySQL quotes a name as Spark does.
        wanted = [
            "NULL"
            if column.source is None
            else family_of(column.source, self.name).select(quoted(column.source.name))
            for column in self.columns_now()
        ]
        return f"SELECT {', '.join(wanted)} FROM {quoted(self._database, self.table.name)}"

    @property
    def key_indices(self) -> tuple[int, ...]:
        """Places of the key's columns among Hive's."""
        return tuple(self._wanted.index(column) for column in self.key)

    def shape(self, logged: LoggedTable, position: str) -> Shape:
        """Match columns of the log with Hive's.

        Args:
            logged: the table at this position.
            position: for messages.

        Raises:
            RecordLayoutError: If Hive lacks a column, or cannot hold one.
            InputFormatError: If a type is not known, or the key is another one than before.
        """
        now = (
            {} if self._catalog is None else {column.name.lower(): column for column in self._catalog.columns}
        )
        where = f"{self.name} at {position}"
        sources: dict[str, SourceColumn] = {}
        for column in logged.columns:
            name = column.name.lower()
            found = column.described(now.get(name))
            if found is None and name in self._wanted:
                raise InputFormatError(
                    f"source table {where}, column {column.name!r}: the log's type {column.meta.type} or "
                    "character "
                    f"set {column.charset or 'of it'} is not known. {START_OVER}"
                )
            sources[name] = found or SourceColumn(column.name, "", "a type that is not known")
        self._check_columns(sources, [], f" at {position}")
        decoder = RowDecoder(self.name, logged.columns, self._wanted)
        columns = self._matched(sources, where)
        self._choose_key(self._keys_of(logged, where), f"had at {position}")
        lacking = frozenset(set(self._wanted) - set(sources) - (self._ignored - set(now)))
        return Shape(decoder, columns, self.key_indices, lacking)

    def _keys_of(self, logged: LoggedTable, where: str) -> Sequence[Sequence[str]]:
        if logged.primary_key:
            return [tuple(name.lower() for name in logged.primary_key)]
        if self._catalog is None or self._catalog.has_primary_key or not self._catalog.keys:
            raise InputFormatError(
                f"source table {where} had no primary key, so its rows cannot be identified. {START_OVER}"
            )
        return self._catalog.keys

    def _check_columns(self, sources: Mapping[str, SourceColumn], missing: Sequence[str], where: str) -> None:
        """Refuse columns that one side lacks, unless they are ignored. Raises RecordLayoutError."""
        extra = [name for name in sources if name not in self._wanted and name not in self._ignored]
        if not (missing or extra):
            return
        target, own = self.table.target.full_name, self.table.name
        lacks = []
        if missing:
            lacks.append(
                f"the source lacks {', '.join(missing)}: set {_them(missing)} to NULL in Hive "
                f"(UPDATE {target} SET …) and leave {_them(missing)} out: "
                f"{self._advice.ignore_columns(own, missing)}"
            )
        if extra:
            names = [sources[name].name for name in extra]
            described = ", ".join(
                f"{own}.{sources[n].name} ({sources[n].type_text} at the source)" for n in extra
            )
            lacks.append(
                f"Hive lacks {described}: add {_them(extra)} by ALTER TABLE {target} ADD COLUMNS (…), or "
                "leave "
                f"{_them(extra)} out: {self._advice.ignore_columns(own, names)}"
            )
        raise RecordLayoutError(f"source table {self.name}{where} and {target} differ: {'; '.join(lacks)}")

    def _matched(self, sources: Mapping[str, SourceColumn], where: str) -> tuple[TargetColumn, ...]:
        found = []
        for (name, kind), lower in zip(self._targets, self._wanted, strict=True):
            source = sources.get(lower)
            if source is not None:
                check_target(source, kind, where)
            found.append(TargetColumn(name, kind, source))
        return tuple(found)

    def _choose_key(self, keys: Iterable[Sequence[str]], when: str) -> None:
        """The given key, if it is unique; without one the first key whose columns Hive has.

        The rows of one run have one key, since they are reduced by it.
        """
        unique = [tuple(column.lower() for column in key) for key in keys]
        shown = " or ".join("(" + ", ".join(key) + ")" for key in unique)
        given = tuple(column.lower() for column in self.table.key)
        if given:
            if not any(set(key) <= set(given) for key in unique):
                raise RecordLayoutError(
                    f"source table {self.name}: rows may be equal in {', '.join(given)}, so these columns "
                    "are no "
                    f"key; unique and never NULL are {shown}"
                )
            self.key = given
            return
        usable = [key for key in unique if set(key) <= set(self._wanted)]
        if not usable:
            target = self.table.target.full_name
            raise RecordLayoutError(
                f"source table {self.name}: {target} lacks columns of each of its keys ({shown}). Add those "
                f"of one key (ALTER TABLE {target} ADD COLUMNS (…)), then run with "
                f"{self._advice.recopy([self.table.name])}, which fills them"
            )
        if self.key and self.key not in usable:
            raise InputFormatError(
                f"source table {self.name}: its rows were identified by ({', '.join(self.key)}), and the key "
                f"that it {when} is {shown}; one run cannot identify rows by both. {START_OVER}"
            )
        self.key = self.key or usable[0]


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"
