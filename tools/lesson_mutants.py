"""Derives wrong programs from a right one: candidates(text) for tools/mutate-lesson. Works on C++ tokens, not on its grammar;
what does not compile is dropped later."""
import collections
import hashlib
import re

TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
  |(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
  |(?P<number>\d[\d.']*(?:[eE][+-]?\d+)?[a-zA-Z]*)
  |(?P<name>[A-Za-z_]\w*)
  |(?P<mark><=>|<<=|>>=|\.\.\.|->|::|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""", re.VERBOSE | re.DOTALL)
Token = collections.namedtuple("Token", "kind text begin end spaced")
Mutant = collections.namedtuple("Mutant", "operator line old new occurrence text")

SWAPS = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "^": "|", "&": "|", "<<": ">>", ">>": "<<", "<": "<=", "<=": "<",
         ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+=": "=", "-=": "+=", "*=": "+=", "/=": "*=",
         "=": "+=", "++": "--", "--": "++"}
NAME_PAIRS = [("next", "prev"), ("send", "recv"), ("isend", "irecv"), ("begin", "end"), ("first", "last"), ("front", "back"),
              ("min", "max"), ("floor", "ceil"), ("floats", "bytes"), ("rank", "world_size"), ("true", "false"),
              ("input", "output"), ("weights", "gradients"), ("min_element", "max_element"), ("zeros_like", "ones_like"),
              ("continue", "break")]
OPEN, CLOSE = "([{", ")]}"
BEFORE_OPERAND = {"(", ",", "=", "[", "?", ":", "return", "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "^", "+=",
                  "-=", "*=", "/=", "{"}
AFTER_OPERAND = {")", ",", ";", "]", "?", ":", "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "^", "}"}
NOT_CALLED = {"if", "for", "while", "switch", "return", "catch", "sizeof"}


class Source:
    """A text, its tokens, and which of its brackets and statements belong together."""

    def __init__(self, text):
        self.text, self.tokens = text, []
        for match in TOKEN.finditer(text):
            if match.lastgroup != "skip":
                begin, end = match.span()
                self.tokens.append(Token(match.lastgroup, match.group(), begin, end,
                                         text[begin - 1].isspace() and text[end:end + 1].isspace()))
        self.partner, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in OPEN and token.kind == "mark":
                stack.append(i)
            elif token.text in CLOSE and token.kind == "mark":
                self.partner[i] = stack[-1]
                self.partner[stack.pop()] = i

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def words(self, first, last):
        """The text of tokens first to last, last included."""
        return self.text[self.tokens[first].begin:self.tokens[last].end]

    def operand_end(self, i):
        """The last token of the operand that begins at i: names, members, calls, indices."""
        while True:
            following = self.at(i + 1)
            if following in (".", "->", "::"):
                i += 2
            elif following in ("(", "[") and self.tokens[i].kind in ("name", "mark"):
                i = self.partner[i + 1]
            elif following == "<" and not self.tokens[i + 1].spaced and self.at(i) == "static_cast":
                while self.at(i) != "(":
                    i += 1
                i = self.partner[i]
            else:
                return i

    def parts(self, opening):
        """The (first, last) tokens of what commas separate between brackets."""
        found, first, i, closing = [], opening + 1, opening + 1, self.partner[opening]
        while i <= closing:
            if i == closing or self.at(i) == ",":
                if first < i:
                    found.append((first, i - 1))
                first = i + 1
            elif self.at(i) in OPEN:
                i = self.partner[i]
            i += 1
        return found

    def is_block(self, i):
        """Whether the brace at i opens a block of statements."""
        if self.at(i) != "{":
            return False
        if self.at(i - 1) in (")", "]", "else", "do", "const", "noexcept", "mutable", "override"):
            return True
        back = i - 1  # a lambda's `-> type {`
        while self.tokens[back].kind == "name" or self.at(back) in ("::", "<", ">", "*", "&"):
            back -= 1
        return self.at(back) == "->" and self.at(back - 1) == ")"

    def statement_end(self, i):
        """The last token of the statement that begins at i."""
        word = self.at(i)
        if word == "{":
            return self.partner[i]
        if word in ("if", "for", "while", "switch"):
            end = self.statement_end(self.partner[i + 1] + 1)
            if word == "if" and self.at(end + 1) == "else":
                return self.statement_end(end + 2)
            return end
        while i < len(self.tokens) and self.at(i) != ";":
            i = self.partner.get(i, i) if self.at(i) in OPEN else i
            i += 1
        return i

    def blocks(self):
        """(opening token, statements as (first, last)) of every block."""
        for i in range(len(self.tokens)):
            if self.is_block(i):
                found, at = [], i + 1
                while at < self.partner[i]:
                    found.append((at, self.statement_end(at)))
                    at = found[-1][1] + 1
                yield i, found


    def names_in(self, first, last):
        """The names in a statement: two that have none in common may change places."""
        return {token.text for token in self.tokens[first:last + 1] if token.kind == "name"} - {"const", "auto", "std", "return"}

    def is_same_twice(self, first, last):
        """Whether nobody can see that a statement stands there twice: a jump, a declaration, a call that may be repeated."""
        block_end = last - 1 if self.at(last) == "}" else last
        back = block_end - 1
        while back > first and self.at(back) not in (";", "{", "}", ")"):
            back -= 1
        jumps = {self.at(first), self.at(back + 1)} & {"return", "break", "continue", "throw"}
        called = self.at(self.partner[last - 1] - 1) if self.at(last - 1) == ")" else ""
        return bool(jumps) or self.at(first) in ("const", "auto") or called in ("wait", "clear", "resize", "zero_grad")


def swapped_operators(s):
    for i, token in enumerate(s.tokens):
        if token.kind != "mark":
            continue
        if token.text in SWAPS and (token.spaced or token.text in ("++", "--")):
            yield "operator", i, i, SWAPS[token.text]
            if token.text == "/":
                yield "operator", i, i, "%"
        elif token.text in ("-", "!") and not token.spaced:
            yield "sign", i, i, ""


def off_by_one(s):
    for i, token in enumerate(s.tokens):
        if token.kind not in ("name", "number") or s.at(i - 1) not in BEFORE_OPERAND or token.text in NOT_CALLED:
            continue
        end = s.operand_end(i)
        if s.at(end + 1) in AFTER_OPERAND and not (s.at(end + 1) == ":" and s.at(i - 1) == "("):
            operand = s.words(i, end)
            if token.kind == "number":
                whole = re.fullmatch(r"\d+", operand)
                news = [f"{int(operand) + 1}", f"{int(operand) - 1}"] if whole else [f"({operand} * 2)", f"({operand} / 2)"]
            else:
                news = [f"({operand} + 1)", f"({operand} - 1)"]
            for new in news:
                yield "constant" if token.kind == "number" else "off by one", i, end, new


def conditions(s):
    for i, token in enumerate(s.tokens):
        if token.text in ("if", "while") and s.at(i + 1) == "(":
            first, last = i + 2, s.partner[i + 1] - 1
            condition = s.words(first, last)
            for new in (f"!({condition})", f"({condition}) || true", f"({condition}) && false"):
                yield "condition", first, last, new
        elif token.text == "?":
            middle = i + 1
            while s.at(middle) != ":":
                middle = s.partner.get(middle, middle) + 1
            end = middle + 1
            while s.at(end) not in (",", ";", *CLOSE):
                end = s.partner.get(end, end) + 1
            yes, no = s.words(i + 1, middle - 1), s.words(middle + 1, end - 1)
            for new in (f"{no} : {yes}", f"{yes} : {yes}", f"{no} : {no}"):
                yield "condition", i + 1, end - 1, new


def statements(s):
    for opening, found in s.blocks():
        is_loop = s.at(opening - 1) == ")" and s.at(s.partner[opening - 1] - 1) in ("for", "while")
        for new in ("break;", "continue;") if is_loop else ("return {};", "return;"):
            yield "early return", opening, opening, "{ " + new
        for k, (first, last) in enumerate(found):
            text = s.words(first, last)
            yield "dropped", first, last, ";"
            if not s.is_same_twice(first, last):
                yield "doubled", first, last, f"{text} {text}"
            if k + 1 < len(found) and s.names_in(first, last) & s.names_in(*found[k + 1]):
                after_first, after_last = found[k + 1]
                yield "reordered", first, after_last, f"{s.words(after_first, after_last)} {text}"
    for i, token in enumerate(s.tokens):  # the body of a loop or a branch without braces
        if token.text in ("for", "while", "if") and s.at(i + 1) == "(":
            body = s.partner[i + 1] + 1
            if s.at(body) != "{":
                last, text = s.statement_end(body), ""
                text = s.words(body, last)
                yield "dropped", body, last, ";"
                if not s.is_same_twice(body, last):
                    yield "doubled", body, last, "{ " + text + " " + text + " }"
                if token.text != "if":
                    yield "early return", body, last, "{ " + text + " break; }"
                    inner = {"for": "break", "while": "break"}[token.text]
                    yield "early return", body, last, f"{inner};"
        elif token.text == "else":
            yield "dropped", i + 1, s.statement_end(i + 1), ";"


def calls(s):
    for i, token in enumerate(s.tokens):
        if token.text == "(" and s.tokens[i - 1].kind == "name" and s.at(i - 1) not in NOT_CALLED:
            parts, closing = s.parts(i), s.partner[i]
            if s.at(i - 2) in (".", "->"):
                yield "call dropped", i - 2, closing, ""
            for first, last in parts:  # the call replaced by its argument
                back = i - 1
                while s.at(back - 1) in ("::", ".", "->"):
                    back -= 2
                    if s.at(back) == ")":
                        back = s.partner[back] - 1
                yield "call dropped", back, closing, s.words(first, last)
        if token.text in ("(", "{") and i in s.partner and not s.is_block(i):
            parts = s.parts(i)
            for (first, last), (after_first, after_last) in zip(parts, parts[1:]):
                yield ("arguments swapped", first, after_last,
                       f"{s.words(after_first, after_last)}, {s.words(first, last)}")


def names(s):
    enumerators, kinds = collections.defaultdict(set), collections.defaultdict(set)
    for i, token in enumerate(s.tokens):
        if re.fullmatch(r"k[A-Z]\w*", token.text) and s.at(i - 1) == "::":
            enumerators[s.at(i - 2)].add(token.text)
        if token.kind == "name" and s.at(i + 1) in ("=", ",", ")", ";", ":", "{") and (
                s.tokens[i - 1].kind == "name" or s.at(i - 1) in ("&", ">")) and s.at(i - 1) not in ("return", "="):
            kinds[s.at(i - 1) if s.at(i - 1) not in ("&", ">") else s.at(i - 2)].add(token.text)
        if token.kind == "name" and s.at(i - 1) == "," and s.at(i + 1) == "=":  # `int a = 1, b = 2`
            back = i
            while back > 0 and s.at(back - 1) not in (";", "{", "}"):
                back -= 1
            back += s.at(back) == "const"
            kinds[s.at(back)].add(token.text)
    for i, token in enumerate(s.tokens):
        if token.kind != "name":
            continue
        for one, other in NAME_PAIRS:
            parts = token.text.split("_")
            for old, new in ((one, other), (other, one)):
                if token.text == old:
                    yield "name", i, i, new
                elif old in parts:
                    yield "name", i, i, "_".join(new if part == old else part for part in parts)
        others = set(enumerators[s.at(i - 2)]) if s.at(i - 1) == "::" else set()
        if s.at(i - 1) not in (".", "->", "::") and s.at(i + 1) != "(" and not (
                s.tokens[i - 1].kind == "name" and s.at(i - 1) not in ("return", "throw")):
            for group in kinds.values():
                if token.text in group:
                    others |= group
        for other in sorted(others - {token.text}):
            yield "name", i, i, other


def changed_lines(old, new):
    """(number of the first line, old lines, new lines) without what is the same before and after."""
    a, b = old.split("\n"), new.split("\n")
    begin = 0
    while begin < min(len(a), len(b)) and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < min(len(a), len(b)) - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    return begin + 1, tuple(line.strip() for line in a[begin:len(a) - end]), tuple(
        line.strip() for line in b[begin:len(b) - end])


def candidates(text, given=""):
    """All mutants of a text, in the order in which they are to be tried: evenly over operators, then over lines. What `given`,
    the starter, has already is not changed: a learner does not write it."""
    given = {line.strip() for line in given.splitlines() if len(line.strip()) > 1}
    source, found, seen, occurrences = Source(text), [], {text}, collections.Counter()
    for generate in (swapped_operators, off_by_one, conditions, statements, calls, names):
        for operator, first, last, new in generate(source):
            begin, end = source.tokens[first].begin, source.tokens[last].end
            mutated = text[:begin] + new + text[end:]
            if re.sub(r"\s", "", mutated) == re.sub(r"\s", "", text) or mutated in seen:
                continue
            seen.add(mutated)
            found.append((operator, mutated))
    ordered = []
    for operator, mutated in sorted(found, key=lambda one: changed_lines(text, one[1])[0]):
        line, old, new = changed_lines(text, mutated)
        if old and set(old) <= given:
            continue
        occurrences[old, new] += 1
        ordered.append(Mutant(operator, line, old, new, occurrences[old, new], mutated))
    groups = collections.defaultdict(list)
    for mutant in ordered:
        groups[mutant.operator].append(mutant)
    chosen, of_line = [], collections.Counter()
    def rank(mutant):
        return of_line[mutant.line], hashlib.sha256(repr(mutant[:5]).encode()).hexdigest()
    while any(groups.values()):
        for operator in sorted(groups):
            if groups[operator]:
                best = min(groups[operator], key=rank)
                groups[operator].remove(best)
                of_line[best.line] += 1
                chosen.append(best)
    return chosen
