"""Tokens of SQL statements, and native functions.

Tokens of a SQL statement as MySQL and MariaDB write it into their logs, and a cursor over them.

Source: MySQL's manual, "Language Structure"; MariaDB's documentation, "Comment Syntax".

Functions that servers bring along, which change no rows; any other function may.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Cursor", "Kind", "Token", "UnknownSyntaxError", "is_call_without_effect", "tokens_of"]


_DOUBTFUL_FROM = 50700
"""MariaDB skips MySQL's comments of this version and later, and each server those of versions above its own.
"""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<code>/\*(?P<maria>M)?!(?P<version>\d{5,6})?)
      | (?P<end>\*/)
      | (?P<comment>/\*.*?\*/ | --(?=[\s\x00-\x1f]|$)[^\n]* | \#[^\n]*)
      | `(?P<name>(?:[^`]|``)*)`
      | (?P<word>[\w$]+)
      | (?P<mark>[^\s'"`])""",
    re.X | re.S,
)
_STRINGS = {
    ("'", True): re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.S),
    ("'", False): re.compile(r"'((?:[^']|'')*)'", re.S),
    ('"', True): re.compile(r'"((?:[^"\\]|\\.|"")*)"', re.S),
    ('"', False): re.compile(r'"((?:[^"]|"")*)"', re.S),
}


class UnknownSyntaxError(ValueError):
    """Raised when a statement is not one that this package understands."""


class Kind(enum.Enum):
    """Kinds of tokens."""

    WORD = "word"
    """A keyword, a name without quotes, or a number."""
    NAME = "name"
    """A name in quotes."""
    STRING = "string"
    MARK = "mark"


@dataclass(frozen=True)
class Token:
    """A token; ``text`` is without quotes."""

    kind: Kind
    text: str

    def is_word(self, *words: str) -> bool:
        """True if it is one of these keywords, or one of these marks."""
        return self.kind in (Kind.WORD, Kind.MARK) and self.text.lower() in words

    @property
    def is_name(self) -> bool:
        """True if it may be the name of a table, column or function."""
        return self.kind in (Kind.WORD, Kind.NAME)


def tokens_of(
    text: str, *, ansi_quotes: bool = False, backslashes: bool = True, doubtful: bool = True
) -> list[Token]:
    """Return the tokens of a statement, without comments.

    Args:
        text: the statement.
        ansi_quotes: double quotes enclose names, not strings.
        backslashes: a backslash in a string escapes the next character.
        doubtful: include the text of comments that only some server versions execute.

    Raises:
        UnknownSyntaxError: If a string, a name or a comment has no end.
    """
    found: list[Token] = []
    at, open_comments = 0, 0
    while at < len(text):
        if text[at] in "'\"":
            match = _STRINGS[text[at], backslashes].match(text, at)
            if match is None:
                raise UnknownSyntaxError(f"a string without an end: {text[at : at + 40]!r}")
            is_name = ansi_quotes and text[at] == '"'
            found.append(Token(Kind.NAME if is_name else Kind.STRING, match[1]))
            at = match.end()
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownSyntaxError(f"cannot be read: {text[at : at + 40]!r}")
        at = match.end()
        if match["code"]:
            is_doubtful = bool(match["maria"]) or int(match["version"] or 0) >= _DOUBTFUL_FROM
            if is_doubtful and not doubtful:
                at = _end_of_comment(text, at)
            else:
                open_comments += 1
        elif match["end"]:
            if not open_comments:
                raise UnknownSyntaxError("*/ without a comment")
            open_comments -= 1
        elif match["name"] is not None:
            found.append(Token(Kind.NAME, match["name"].replace("``", "`")))
        elif match["word"]:
            found.append(Token(Kind.WORD, match["word"]))
        elif match["mark"]:
            found.append(Token(Kind.MARK, match["mark"]))
    if open_comments:
        raise UnknownSyntaxError("a comment without an end")
    while found and found[-1].is_word(";"):
        found.pop()
    return found


def _end_of_comment(text: str, at: int) -> int:
    end = text.find("*/", at)
    if end < 0:
        raise UnknownSyntaxError("a comment without an end")
    return end + 2


@dataclass
class Cursor:
    """Reads tokens one after the other."""

    tokens: Sequence[Token]
    at: int = 0

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens that were not read."""
        return self.tokens[self.at :]

    @property
    def is_done(self) -> bool:
        """True behind the last token."""
        return self.at >= len(self.tokens)

    def peek(self, *words: str) -> bool:
        """True if the next token is one of these keywords or marks."""
        return not self.is_done and self.tokens[self.at].is_word(*words)

    def accept(self, *words: str) -> bool:
        """Read these keywords if all of them come next."""
        following = self.tokens[self.at : self.at + len(words)]
        if len(following) == len(words) and all(
            token.is_word(word) for token, word in zip(following, words, strict=True)
        ):
            self.at += len(words)
            return True
        return False

    def accept_any(self, words: Collection[str]) -> bool:
        """Read one keyword or mark of these."""
        if self.peek(*words):
            self.at += 1
            return True
        return False

    def word(self) -> str:
        """Read a keyword; return it in lower case, or nothing behind the end or at another token."""
        if self.is_done or self.tokens[self.at].kind is not Kind.WORD:
            return ""
        self.at += 1
        return self.tokens[self.at - 1].text.lower()

    def name(self) -> str:
        """Read a name. Raises UnknownSyntaxError if none comes next."""
        if self.is_done or not self.tokens[self.at].is_name:
            raise UnknownSyntaxError(f"no name at token {self.at}")
        self.at += 1
        return self.tokens[self.at - 1].text

    def table(self, database: str) -> tuple[str, str]:
        """Read the name of a table; return its database, by default the given one, and its name."""
        first = self.name()
        return (first, self.name()) if self.accept(".") else (database, first)

    def parentheses(self) -> Sequence[Token]:
        """Read what is enclosed in parentheses; return it without them. Raises UnknownSyntaxError."""
        if not self.accept("("):
            raise UnknownSyntaxError(f"no parenthesis at token {self.at}")
        start, depth = self.at, 1
        while depth:
            if self.is_done:
                raise UnknownSyntaxError("a parenthesis without an end")
            depth += self.peek("(") - self.peek(")")
            self.at += 1
        return self.tokens[start : self.at - 1]

    def split(self, mark: str = ",") -> Iterator[Cursor]:
        """The parts of the rest between marks that are not in parentheses."""
        part: list[Token] = []
        depth = 0
        for token in self.rest:
            depth += token.is_word("(") - token.is_word(")")
            if depth == 0 and token.is_word(mark):
                yield Cursor(part)
                part = []
            else:
                part.append(token)
        yield Cursor(part)


_FUNCTIONS = """
abs acos adddate addtime aes_decrypt aes_encrypt any_value ascii asin atan atan2 avg benchmark bin
bin_to_uuid bit_and bit_count bit_length bit_or bit_xor cast ceil ceiling char char_length character_length
charset chr coalesce coercibility collation compress concat concat_ws connection_id conv convert convert_tz
cos cot count crc32 crc32c cume_dist curdate current_date current_role current_time current_timestamp
current_user curtime database date date_add date_format date_sub datediff day dayname dayofmonth dayofweek
dayofyear decode degrees dense_rank des_decrypt des_encrypt elt encode encrypt exp export_set extract
extractvalue field find_in_set first_value floor format format_bytes format_pico_time found_rows from_base64
from_days from_unixtime get_format get_lock greatest group_concat grouping hex hour if ifnull inet6_aton
inet6_ntoa inet_aton inet_ntoa insert instr interval is_free_lock is_ipv4 is_ipv6 is_used_lock is_uuid
isnull json_array json_array_append json_array_insert json_arrayagg json_compact json_contains
json_contains_path json_depth json_detailed json_equals json_exists json_extract json_insert json_keys
json_length json_loose json_merge json_merge_patch json_merge_preserve json_normalize json_object
json_objectagg json_overlaps json_pretty json_query json_quote json_remove json_replace json_search json_set
json_table json_type json_unquote json_valid json_value kdf lag last_day last_insert_id last_value lcase
lead least left length ln localtime localtimestamp locate log log10 log2 lower lpad ltrim make_set makedate
maketime max md5 median member microsecond mid min minute mod month monthname name_const natural_sort_key
now nth_value ntile nullif nvl nvl2 oct octet_length old_password ord password percent_rank percentile_cont
percentile_disc period_add period_diff pi position pow power quarter quote radians rand random_bytes rank
regexp_instr regexp_like regexp_replace regexp_substr release_all_locks release_lock repeat replace reverse
right round row_count row_number rpad rtrim schema sec_to_time second session_user sformat sha sha1 sha2
sign sin sleep soundex sqrt std stddev stddev_pop stddev_samp str_to_date strcmp subdate substr substring
substring_index subtime sum sys_guid sysdate system_user tan time time_format time_to_sec timediff timestamp
timestampadd timestampdiff to_base64 to_char to_days to_seconds trim trunc truncate ucase uncompress
uncompressed_length unhex unix_timestamp updatexml upper user utc_date utc_time utc_timestamp uuid
uuid_short uuid_to_bin validate_password_strength values var_pop var_samp variance version week weekday
weekofyear weight_string year yearweek
"""

_BEFORE_PARENTHESES = """
all and any as between binary by case collate distinct div else exists force from having ignore in index
into is join key like mod not offset on or order over partition regexp return rlike row rows select set
sounds then union use intersect except using value values when where while with window xor limit default
duplicate update straight_join int integer decimal numeric bit varchar varbinary datetime enum float double
unsigned signed nchar real against match
"""

_KNOWN = frozenset(f"{_FUNCTIONS} {_BEFORE_PARENTHESES}".split())


def is_call_without_effect(word: str) -> bool:
    """True if ``word (`` is a function of the server, or no call."""
    return word.lower() in _KNOWN
