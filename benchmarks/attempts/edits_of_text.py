"""Edits of the text of params.yaml: what readers of YAML take differently, what is no text, what never ends."""

from collections.abc import Callable

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
MERGED = "b0: &b0 {k: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}\n" for n in range(1, 9))
SAME = "steps: 24\n"  # of section engine
QUERIES, RATE, SEED, SHIPPED = "train_queries: 192", "learning_rate: 2.0e-4", "  seed: 0\n", "shipped: true"


def put(old: str, new: str) -> Callable[[str], bytes]:
    """The text with `new` in place of the first `old`."""

    def edited(text: str) -> bytes:
        assert old in text, f"params.yaml no longer holds {old!r}"
        return text.replace(old, new, 1).encode()

    return edited


def before(more: str) -> Callable[[str], bytes]:
    return lambda text: (more + text).encode()


def after(more: str) -> Callable[[str], bytes]:
    return lambda text: (text + more).encode()


def only(content: bytes) -> Callable[[str], bytes]:
    return lambda text: content


def cut(share: float) -> Callable[[str], bytes]:
    """The text up to a share of it, in the middle of a line."""
    return lambda text: text.encode()[: int(share * len(text.encode()))]


NUMERALS = ("0300", "0o300", "0x100", "0b110", "3:12", "1_92", "192.", "1.92e2", "192 192", "192,0", "½", "١٩٢")
RATES = ("2e-4", "2.0e-4.0", "0x1p-12", "1:30.5", "2_0.0e-4", ".NaN", ".inf", "-.inf", "2,0e-4", "1e400", "1e-400")
TRUTHS = ("yes", "on", "y", "Yes", "no", "True()", "1", "'true'", "~")
TEXTS: list[tuple[str, str, Callable[[str], bytes], str]] = [  # (group, name, edit, why it may be accepted)
    *(("numerals", f"train_queries: {word}", put(QUERIES, f"train_queries: {word}"), "") for word in NUMERALS),
    *(("numerals", f"learning_rate: {word}", put(RATE, f"learning_rate: {word}"), "") for word in RATES),
    *(("numerals", f"shipped: {word}", put(SHIPPED, f"shipped: {word}"), "") for word in TRUTHS),
    ("numerals", "a number of 5,000 digits", put(QUERIES, f"train_queries: {'9' * 5000}"), ""),
    ("numerals", "a date", put(QUERIES, "train_queries: 2026-11-23"), ""),
    ("numerals", "+192", put(QUERIES, "train_queries: +192"), "+192 is 192 to every reader"),
    ("numerals", "-0", put(SEED, "  seed: -0\n"), "-0 is 0 to every reader"),
    ("encodings", "UTF-16", lambda text: text.encode("utf-16"), ""),
    ("encodings", "UTF-16 without a mark", lambda text: text.encode("utf-16-le"), ""),
    ("encodings", "UTF-32", lambda text: text.encode("utf-32"), ""),
    ("encodings", "Latin-1", lambda text: text.encode("latin-1", "replace").replace(b"D?S", b"D\xb3S"), ""),
    ("encodings", "a mark of UTF-8", lambda text: b"\xef\xbb\xbf" + text.encode(), "the mark of UTF-8 means nothing"),
    ("encodings", "line ends of Windows", lambda text: text.replace("\n", "\r\n").encode(), "YAML counts them as such"),
    ("encodings", "a byte that is none", only(b"scale: \xff\xfe"), ""),
    ("encodings", "a zero byte", put(SEED, "  seed: 0\0\n"), ""),
    ("encodings", "a bell", put(SEED, "  seed: 0 # \a\n"), ""),
    ("encodings", "half a character", only(b"scale: \xed\xa0\x80"), ""),
    ("encodings", "binary", only(bytes(range(256)) * 20), ""),
    ("encodings", "a picture", only(b"\x89PNG\r\n\x1a\n" + bytes(200)), ""),
    ("bombs", "aliases of aliases", before(BOMB), ""),
    ("bombs", "merged aliases of aliases", before(MERGED), ""),
    ("bombs", "an alias of what contains it", before("a: &a {b: *a}\n"), ""),
    ("bombs", "a list of itself", before("a: &a [*a]\n"), ""),
    ("bombs", "5,000 brackets", only(b"a: " + b"[" * 5000 + b"]" * 5000), ""),
    ("bombs", "100,000 brackets, open", only(b"[" * 100_000), ""),
    ("bombs", "60 levels", only(b"a: " + b"{a: " * 60 + b"1" + b"}" * 60), ""),
    ("bombs", "12,000 keys", only(b"\n".join(b"k%d: 1" % n for n in range(12_000))), ""),
    ("bombs", "3 MB of blanks", after(" " * 3_000_000), ""),
    ("bombs", "a key of 100 kB", before("k" * 100_000 + ": 1\n"), ""),
    ("bombs", "a comment of 150 kB", after("# " + "x" * 150_000), "a comment; under the limit of a file"),
    ("tags", "os.system", put(SEED, "  seed: !!python/object/apply:os.system ['touch executed']\n"), ""),
    ("tags", "subprocess", put(SEED, "  seed: !!python/object/new:subprocess.Popen [[touch, executed]]\n"), ""),
    ("tags", "a module", put(SEED, "  seed: !!python/module:os\n"), ""),
    ("tags", "a name", put(SEED, "  seed: !!python/name:os.system\n"), ""),
    ("tags", "of its own", put(SEED, "  seed: !seed 0\n"), ""),
    ("tags", "a set", put(SEED, "  seed: !!set {0}\n"), ""),
    ("tags", "binary", put(SEED, "  seed: !!binary MA==\n"), ""),
    ("tags", "an int that is none", put(SEED, "  seed: !!int x\n"), ""),
    ("tags", "an int of a list", put(SEED, "  seed: !!int [0]\n"), ""),
    ("tags", "a mapping of a number", put("task:\n", "task: !!map 3\nwas:\n"), ""),
    ("tags", "a float of a whole number", put(SEED, "  seed: !!float 0\n"), ""),
    ("forms", "empty", only(b""), ""),
    ("forms", "a comment", only(b"# nothing\n"), ""),
    ("forms", "a list", only(b"- scale\n"), ""),
    ("forms", "a word", only(b"scale\n"), ""),
    ("forms", "a number", only(b"3\n"), ""),
    ("forms", "null", only(b"null\n"), ""),
    ("forms", "JSON cut", only(b'{"scale": "cpu", "seeds": [0'), ""),
    ("forms", "two documents", after("---\nscale: cpu\n"), ""),
    ("forms", "a directive of another version", before("%YAML 9.9\n---\n"), ""),
    ("forms", "an end and more", after("...\nscale: cpu\n"), ""),
    ("forms", "a duplicate section", after("engine: {steps: 1}\n"), ""),
    ("forms", "a duplicate key", put(SAME, f"{SAME}  {SAME}"), ""),
    ("forms", "a duplicate arm", put("arms:\n", "arms:\n  grpo: {group: A, title: B, about: C}\n"), ""),
    ("forms", "a duplicate under a merge", before("a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3}\n"), ""),
    ("forms", "a key that is a list", before("? [a]\n: 1\n"), ""),
    ("forms", "a key that is a number", before("3: 1\n"), ""),
    ("forms", "a key that is null", before("~: 1\n"), ""),
    ("forms", "a tab", put("  seed: 0\n", "\tseed: 0\n"), ""),
    ("forms", "one blank too few", put("  train_queries", " train_queries"), ""),
    ("forms", "one blank too many", put("  train_queries", "   train_queries"), ""),
    ("forms", "no blank after a colon", put("scale: cpu", "scale:cpu"), ""),
    ("forms", "an open quote", put("scale: cpu", 'scale: "cpu'), ""),
    ("forms", "an open brace", put("theory:\n", "theory: {\n"), ""),
    ("forms", "marks of a merge of git", before("<<<<<<< HEAD\n"), ""),
    ("forms", "a merge in the middle", put("task:\n", "=======\ntask:\n"), ""),
    *(("forms", f"cut at {share}", cut(share), "") for share in (0.01, 0.1, 0.3, 0.5, 0.61, 0.75, 0.9, 0.97)),
]
