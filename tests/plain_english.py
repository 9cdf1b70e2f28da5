"""Words and patterns that make our English hard to read, found in texts for users and readers of the code.

    python -m tests.plain_english                    # all files; exit code 1 if something is found
    python -m tests.plain_english mutation_api/orc docs/limits.md

Docstrings, comments, and strings of three words or more are read in Python files, and everything outside code
in Markdown. CONTRIBUTING.md has the rules and the words to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = (
    "mutation_api",
    "metastore_client",
    "examples",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
)
NOT_CHECKED = ("metastore_client/_thrift", "mutation_api/cdc/update/postgresql_capture.py")
"""Generated code, and a module with SQL that is stored in databases."""

RULES: dict[str, str] = {
    r"\b(?:texts|(?:a|is|as|no|each|every|one|any|its|of|by|to) text)\b"
    r"(?! (?:file|format|editor|mode|field|log))": "string",
    r"\bwall[- ]clocks?\b": "timestamp without time zone, or local time",
    r"\bmisfits?\b": "invalid value",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\bdoubled\b": "duplicate",
    r"\banew\b": "again",
    r"\blikewise\b": "also, or say what",
    r"\bsurely\b": "certainly, or nothing",
    r"\b(?:told|tells?|telling)\b": "report, say which, inform",
    r"\bfolders?\b": "directory",
    r"\b(?:ours|our|us)\b": "the library, this package",
    r"\b(?:wants?|wanted)\b(?! to)": "require, expect",
    r"\b(?:whoever|whatever|wherever|whichever)\b": "name the subject",
    r"\bto and fro\b": "in both directions",
    r"\bgrowing column": "monotonically increasing column",
    r"\b[Nn]one for\b": "If None, ...",
    r"\b[Cc]omes when\b": "Raised when",
    r"\bas of :\w+:": "See",
    r", (?:also|too)\b(?! (?:many|few|much|large|small|long|old|new|big|short|late|early))": (
        "including; 'too' without a comma"
    ),
    r"(?<!there )\b(?:is|was|be|are|were) no (?:value|date|text|string|table|number|name|file|directory"
    r"|column|partition|bucket|lock|row|key|type|error|timestamp|decimal|list|map|struct)\b": "is not a ...",
    r"(?:^|(?<=[.:;] ))(?:Whoever|Of (?!course)|So it is|What (?![^.?]*\?))": "begin with the subject",
    r"\bof which none\b|\bof whom\b": "say it with a verb",
    r"\ba (?:array|integer|int\b|unsigned|ORC|HDFS|S3|ACL|INSERT|UPDATE|ALTER)": "an",
    r";[^.;:?!]*;": "at most one semicolon a sentence",
}
"""Pattern -> what to write instead."""

DOCSTRING_RULES: dict[str, str] = {
    r"^(?:Whether|What|Of|The same|Likewise|As |Who|How)\b": "begin with a verb, or 'True if'",
}
"""For the first line of a docstring."""


def findings(path: Path) -> Iterator[str]:
    """Lines ``file:line: found -> instead`` for a Python or Markdown file."""
    passages = _python(path) if path.suffix == ".py" else _markdown(path)
    for line, text, is_docstring in passages:
        rules = RULES | DOCSTRING_RULES if is_docstring else RULES
        without_names = re.sub(r"^ {4,}\w+: ", "", text, flags=re.MULTILINE)  # of arguments and fields
        plain = re.sub(r"``.*?``|`[^`]*`|<[^>]*>", "CODE", without_names, flags=re.DOTALL)
        plain = re.sub(r"\s+", " ", plain)
        for pattern, instead in rules.items():
            for match in re.finditer(pattern, plain.strip()):
                around = plain.strip()[max(0, match.start() - 25) : match.end() + 15]
                yield f"{path}:{line}: …{around}… -> {instead}"


def _python(path: Path) -> Iterator[tuple[int, str, bool]]:
    source = path.read_text(encoding="utf-8")
    docstrings = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for each in body:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                docstrings.add(id(each.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                for number, paragraph in _paragraphs(node.value):
                    yield node.lineno + number, paragraph, number == 0
            elif len(re.findall(r"[A-Za-z]{2,}", node.value)) >= 3:
                yield node.lineno, node.value, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa")):
            yield token.start[0], token.string.lstrip("# "), False


def _markdown(path: Path) -> Iterator[tuple[int, str, bool]]:
    text = path.read_text(encoding="utf-8")
    without_code = re.sub(r"^( *)```.*?^\1```", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    for number, paragraph in _paragraphs(without_code):
        for part in re.split(r"\||^[ ]*[*-] ", paragraph, flags=re.M):
            yield number + 1, part, False


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs with the numbers of their first lines, from 0; without code and tables."""
    text = re.sub(_TABLE, lambda m: "\n" * m[0].count("\n"), text)
    lines: list[str] = []
    start, is_code = 0, False
    for number, line in enumerate([*text.splitlines(), ""]):
        is_code = is_code or line.lstrip().startswith((">>>", "..."))
        if line.strip() and not is_code:
            start = start if lines else number
            lines.append(line)
            continue
        if not line.strip():
            is_code = False
        if lines:
            yield start, "\n".join(lines)
            lines = []


_TABLE = re.compile(r"^ *=+(?: +=+)+ *\n(?:.*\n)*?^ *=+(?: +=+)+ *(?=\n\s*\n|\n?\s*\Z)", re.MULTILINE)
"""A table of reStructuredText: from its first line of equals signs to one before an empty line."""


def files(words: Iterable[str]) -> list[Path]:
    """The files to check in these files and directories of the repository, sorted."""
    found = set()
    for word in words:
        path = ROOT / word
        found |= {path} if path.is_file() else {*path.rglob("*.py"), *path.rglob("*.md")}
    kept = (path.relative_to(ROOT) for path in found)
    return sorted(path for path in kept if not str(path).startswith(NOT_CHECKED))


def main(words: Iterable[str]) -> int:
    """Print what is found; 1 if something is."""
    found = [each for path in files(words or CHECKED) for each in findings(path)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
