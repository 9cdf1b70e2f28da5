"""Tokens of an SQL statement as MySQL and MariaDB write it to their logs, and a cursor over them.

The servers' built-in functions are listed here, since they do not change rows; any other function may.

Source: MySQL's manual, "Language Structure"; MariaDB's documentation, "Comment Syntax".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_DOUBTFUL_FROM = 50700
"""From this version number on, MariaDB skips MySQL's version comments. Every server skips those for versions
above its own."""

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
    """Raised when this package does not understand a statement."""


class Kind(enum.Enum):
    """The kinds of tokens."""

    WORD = "word"
    """A keyword, an unquoted name, or a number."""
    NAME = "name"
    """A quoted name."""
    STRING = "string"
    MARK = "mark"


@dataclass(frozen=True)
class Token:
    """A token; ``text`` is without quotes."""

    kind: Kind
    text: str

    def is_word(self, *words: str) -> bool:
        """Return True if the token is one of these keywords or marks."""
        return self.kind in (Kind.WORD, Kind.MARK) and self.text.lower() in words

    @property
    def is_name(self) -> bool:
        """True if the token can be the name of a table, column or function."""
        return self.kind in (Kind.WORD, Kind.NAME)


def tokens_of(
    text: str, *, ansi_quotes: bool = False, backslashes: bool = True, doubtful: bool = True
) -> list[Token]:
    """Return the tokens of a statement, without comments.

    Args:
        text: the statement.
        ansi_quotes: True if double quotes enclose names, not strings.
        backslashes: True if a backslash in a string escapes the next character.
        doubtful: True to include comments that only some server versions execute.

    Raises:
        UnknownSyntaxError: If a string, a name or a comment is not closed.
    """
    found: list[Token] = []
    at, open_comments = 0, 0
    while at < len(text):
        if text[at] in "'\"":
            match = _STRINGS[text[at], backslashes].match(text, at)
            if match is None:
                raise UnknownSyntaxError(f"unterminated string: {text[at : at + 40]!r}")
            is_name = ansi_quotes and text[at] == '"'
            found.append(Token(Kind.NAME if is_name else Kind.STRING, match[1]))
            at = match.end()
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownSyntaxError(f"cannot parse {text[at : at + 40]!r}")
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
        raise UnknownSyntaxError("unterminated comment")
    while found and found[-1].is_word(";"):
        found.pop()
    return found


def _end_of_comment(text: str, at: int) -> int:
    end = text.find("*/", at)
    if end < 0:
        raise UnknownSyntaxError("unterminated comment")
    return end + 2


@dataclass
class Cursor:
    """A cursor that reads tokens one after the other."""

    tokens: Sequence[Token]
    at: int = 0

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens that have not been read."""
        return self.tokens[self.at :]

    @property
    def is_done(self) -> bool:
        """True after the last token."""
        return self.at >= len(self.tokens)

    def peek(self, *words: str) -> bool:
        """Return True if the next token is one of these keywords or marks."""
        return not self.is_done and self.tokens[self.at].is_word(*words)

    def accept(self, *words: str) -> bool:
        """Read these keywords if all of them come next; return True if they were read."""
        following = self.tokens[self.at : self.at + len(words)]
        if len(following) == len(words) and all(
            token.is_word(word) for token, word in zip(following, words, strict=True)
        ):
            self.at += len(words)
            return True
        return False

    def accept_any(self, words: Collection[str]) -> bool:
        """Read one of these keywords or marks if it comes next; return True if it was read."""
        if self.peek(*words):
            self.at += 1
            return True
        return False

    def word(self) -> str:
        """Read a keyword and return it in lower case; return '' at the end or if another token comes next."""
        if self.is_done or self.tokens[self.at].kind is not Kind.WORD:
            return ""
        self.at += 1
        return self.tokens[self.at - 1].text.lower()

    def name(self) -> str:
        """Read a name. Raises UnknownSyntaxError if no name comes next."""
        if self.is_done or not self.tokens[self.at].is_name:
            raise UnknownSyntaxError(f"expected a name at token {self.at}")
        self.at += 1
        return self.tokens[self.at - 1].text

    def table(self, database: str) -> tuple[str, str]:
        """Read a table name; return its database (by default the given one) and the name."""
        first = self.name()
        return (first, self.name()) if self.accept(".") else (database, first)

    def parentheses(self) -> Sequence[Token]:
        """Read and return the tokens within parentheses. Raises UnknownSyntaxError if there are none."""
        if not self.accept("("):
            raise UnknownSyntaxError(f"expected a parenthesis at token {self.at}")
        start, depth = self.at, 1
        while depth:
            if self.is_done:
                raise UnknownSyntaxError("unclosed parenthesis")
            depth += self.peek("(") - self.peek(")")
            self.at += 1
        return self.tokens[start : self.at - 1]

    def split(self, mark: str = ",") -> Iterator[Cursor]:
        """Yield the parts of the remaining tokens between marks that are not in parentheses."""
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
    """Return True if ``word (`` calls a built-in function, or is not a call."""
    return word.lower() in _KNOWN
