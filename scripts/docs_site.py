#!/usr/bin/env python3
"""usage: scripts/docs_site.py ROOT SITE [--links]

The pages of the site, for scripts/docs, which has made SITE/reference and SITE/symbols.xml before. Every Markdown page below
ROOT becomes SITE/<its path>.html as a forge shows it (CommonMark, tables, the anchors of headings), README.md also the front
page. Names of the library in `code` link to the reference. Pictures, data and sources that pages link are copied.

Fails on links without a target. --links also asks for the pages of others that are linked.
"""
import concurrent.futures
import html
import os
import pathlib
import re
import shutil
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree

import markdown_it
import pygments
import pygments.formatters
import pygments.lexers
import pygments.util

problems = []
root, site = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
outside = {}  # address: the first page that links it

INDEX = pathlib.PurePosixPath("docs/README.md")  # its headings and links are the navigation
LAST = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
SHOWN = {".json", ".svg", ".png", ".cff", ""}  # files that are linked as they are; others become pages with their text


def markdown_pages():
    skipped = {"build", "shared"}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in skipped and not f.startswith("."))
        for name in sorted(files):
            if name.endswith(".md"):
                yield pathlib.PurePosixPath(pathlib.Path(folder, name).relative_to(root).as_posix())


# ---- Markdown


def slug(text, seen):
    """The anchor that forges give a heading."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    n = seen.get(base, 0)
    seen[base] = n + 1
    return f"{base}-{n}" if n else base


def text_of(token):
    return "".join(t.content for t in token.children or [] if t.type in ("text", "code_inline", "softbreak"))


HTML_LINK = re.compile(r"<(?:a|img|source)\s[^>]*?\b(?:href|src|srcset)=\"([^\"]*)\"", re.S)
HTML_ANCHOR = re.compile(r"\b(?:id|name)=\"([^\"]*)\"")


class Page:
    """A Markdown page, parsed."""

    def __init__(self, path):
        self.path = path
        self.tokens = parser.parse((root / path).read_text())
        self.anchors, self.headings = set(), []  # headings: (level, anchor, text)
        self.links = []  # (line, address)
        seen = {}
        line = 0
        for i, token in enumerate(self.tokens):
            if token.map:
                line = token.map[0] + 1
            if token.type == "heading_open":
                text = text_of(self.tokens[i + 1])
                anchor = slug(text, seen)
                token.attrs["id"] = anchor
                self.anchors.add(anchor)
                self.headings.append((int(token.tag[1]), anchor, text))
            for part in [token] + (token.children or []):
                if part.type == "link_open":
                    self.links.append((line, part.attrs["href"]))
                elif part.type == "image":
                    self.links.append((line, part.attrs["src"]))
                elif part.type in ("html_inline", "html_block"):
                    self.links += [(line, html.unescape(x)) for x in HTML_LINK.findall(part.content)]
                    self.anchors.update(HTML_ANCHOR.findall(part.content))
        self.title = next((text for level, _, text in self.headings if level == 1), str(path))

    def resolve(self, address):
        """(path below root, anchor) of a relative link; None for one to another host."""
        if re.match(r"[a-z][a-z0-9+.-]*:", address):
            return None
        target, _, anchor = address.partition("#")
        target = urllib.parse.unquote(target)
        if not target:
            return self.path, anchor
        joined = os.path.normpath(self.path.parent / target)
        return pathlib.PurePosixPath(joined), anchor


parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def check(page):
    for line, address in page.links:
        found = page.resolve(address)
        if found is None:
            if address.startswith("http"):
                outside.setdefault(address.partition("#")[0], f"{page.path}:{line}")
            continue
        target, anchor = found
        if str(target).startswith("..") or not (root / target).exists():
            problems.append(f"{page.path}:{line}: there is no {address}")
        elif anchor and target in pages and anchor not in pages[target].anchors:
            problems.append(f"{page.path}:{line}: {target} has no heading #{anchor}")


# ---- HTML


def reference_names():
    """Names of the library's namespaces, without them, to their pages in the reference: those that are unambiguous."""
    names, files, members = {}, {}, set()
    tree = xml.etree.ElementTree.parse(site / "symbols.xml").getroot()

    def add(name, page):
        names.setdefault(name, set()).add(page)

    for compound in tree.findall("compound"):
        kind, name, page = compound.get("kind"), compound.findtext("name"), compound.findtext("filename")
        page = page if page.endswith(".html") else page + ".html"
        if kind == "file":
            files[f"include/{compound.findtext('path')}{name}"] = page
        elif kind in ("class", "struct", "concept") and "detail" not in name.split("::"):
            name = re.sub(r"<.*", "", name)
            add(name, page)
            for member in compound.findall("member"):
                where = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                add(f"{name}::{member.findtext('name')}", where)
                members.add(f"{name}::{member.findtext('name')}")
        elif kind == "namespace" and "detail" not in name.split("::"):
            for member in compound.findall("member"):
                if member.get("kind") in ("function", "variable", "typedef", "enumeration"):
                    where = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                    add(f"{name}::{member.findtext('name')}", where)
                    for value in member.findall("enumvalue"):
                        add(f"{name}::{member.findtext('name')}::{value.text}", where)
                        members.add(f"{name}::{member.findtext('name')}::{value.text}")
    unique = {}
    for name, targets in names.items():
        plain = sorted(targets, key=lambda t: (len(t), t))[0]  # overloads, and specialisations of a template
        parts = name.split("::")
        for i in range(len(parts) - (name in members)):  # a member only together with its type
            short = "::".join(parts[i:])
            if short not in unique or len(parts) <= unique[short][1]:
                unique[short] = (plain, len(parts))
    return {name: page for name, (page, _) in unique.items() if re.search(r"[A-Z_:]", name)}, files


def highlighted(code, language):
    try:
        lexer = pygments.lexers.get_lexer_by_name({"cu": "cuda", "": "text"}.get(language, language))
    except pygments.util.ClassNotFound:
        lexer = pygments.lexers.get_lexer_by_name("text")
    return pygments.highlight(code, lexer, pygments.formatters.HtmlFormatter(cssclass="code"))


def up(path):
    return "../" * (len(path.parts) - 1)


def address_of(target):
    """Where the site has a file or folder of the repository."""
    if target in pages:
        return f"{target.with_suffix('')}.html"
    if str(target) in reference_files:
        return f"reference/{reference_files[str(target)]}"
    if (root / target).is_dir():
        readme = target / "README.md"
        if readme in pages:
            return address_of(readme)
        listed.add(target)
        return f"{target}/index.html"
    copied.add(target)
    return str(target) if target.suffix in SHOWN else f"{target}.html"


def rewritten(page, address):
    found = page.resolve(address)
    if found is None:
        return address
    target, anchor = found
    where = up(page.path) + address_of(target) if target != page.path else ""
    return where + (f"#{anchor}" if anchor else "")


def adapts(page, address):
    """Whether a picture has colours of its own for a dark page."""
    target, _ = page.resolve(address) or (None, None)
    return target and target.suffix == ".svg" and "prefers-color-scheme" in (root / target).read_text()


def picture(page, address, alt):
    kind = " class=adapts" if adapts(page, address) else ""
    return f'<img src="{html.escape(rewritten(page, address))}" alt="{html.escape(alt)}"{kind}>'


def rendered(page):
    """The page's HTML, with links that hold in the site."""
    out = []
    inside_link = 0

    def html_part(text):
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)

        def link(match):
            address = html.unescape(match[1])
            tag = match[0].replace(f'"{match[1]}"', f'"{html.escape(rewritten(page, address))}"')
            return tag.replace("<img", "<img class=adapts", 1) if tag.startswith("<img") and adapts(page, address) else tag

        return HTML_LINK.sub(link, text)

    def inline(tokens):
        nonlocal inside_link
        for t in tokens:
            if t.type == "text":
                out.append(html.escape(t.content, quote=False))
            elif t.type == "code_inline":
                code = f"<code>{html.escape(t.content, quote=False)}</code>"
                name = re.fullmatch(r"([A-Za-z_]\w*(?:::\w+)*)(?:\(\)|<[\w:, ]*>)?", t.content)
                to = reference.get(name[1]) if name and not inside_link else None
                out.append(f'<a href="{up(page.path)}reference/{to}">{code}</a>' if to else code)
            elif t.type == "link_open":
                inside_link += 1
                out.append(f'<a href="{html.escape(rewritten(page, t.attrs["href"]))}">')
            elif t.type == "link_close":
                inside_link -= 1
                out.append("</a>")
            elif t.type == "image":
                out.append(picture(page, t.attrs["src"], t.content))
            elif t.type == "html_inline":
                out.append(html_part(t.content))
            elif t.type == "softbreak":
                out.append("\n")
            elif t.type == "hardbreak":
                out.append("<br>\n")
            else:
                out.append(f"<{'/' if t.nesting < 0 else ''}{t.tag}>")

    for i, token in enumerate(page.tokens):
        if token.type == "inline":
            inline(token.children)
        elif token.type == "fence":
            out.append(highlighted(token.content, token.info.split()[0] if token.info.strip() else ""))
        elif token.type == "code_block":
            out.append(highlighted(token.content, ""))
        elif token.type == "html_block":
            out.append(html_part(token.content))
        elif token.type == "heading_open":
            out.append(f'<{token.tag} id="{token.attrs["id"]}">')
        elif token.type == "heading_close":
            out.append(f"</{token.tag}>\n")
        elif token.type in ("table_open", "table_close"):
            out.append('<div class="wide"><table>' if token.nesting > 0 else "</table></div>\n")
        elif token.type in ("paragraph_open", "paragraph_close") and token.hidden:
            out.append("" if token.nesting > 0 else "\n")
        elif token.type in ("td_open", "th_open"):
            text = text_of(page.tokens[i + 1])
            short = len(text) <= (30 if re.search(r"\d", text) else 12)
            kind = " class=short" if short else " class=long" if len(text) > 90 else ""
            style = f' style="{token.attrs["style"]}"' if "style" in token.attrs else ""
            out.append(f"<{token.tag}{kind}{style}>")
        elif token.type == "hr":
            out.append("<hr>\n")
        else:
            style = f' style="{token.attrs["style"]}"' if "style" in token.attrs else ""
            start = f' start="{token.attrs["start"]}"' if "start" in token.attrs else ""
            out.append(f"<{'/' if token.nesting < 0 else ''}{token.tag}{style}{start}>")
            if token.nesting < 0:
                out.append("\n")
    return "".join(out)


def navigation():
    """[(group, [path])]: the front page's links in docs/README.md by heading if there is one, then what it does not name."""
    groups, named = [], {pathlib.PurePosixPath("README.md"), INDEX}
    if INDEX in pages:
        page, group = pages[INDEX], None
        for i, token in enumerate(page.tokens):
            if token.type == "heading_open" and token.tag == "h2":
                group = (text_of(page.tokens[i + 1]), [])
                groups.append(group)
            for part in token.children or []:
                if part.type == "link_open" and group:
                    found = page.resolve(part.attrs["href"])
                    if found and found[0] in pages and found[0] not in named and str(found[0]) not in LAST:
                        named.add(found[0])
                        group[1].append(found[0])
    rest = [p for p in pages if p.parts[0] == "docs" and p not in named]
    if rest:
        groups.append(("More pages" if groups else "Pages", sorted(rest, key=lambda p: pages[p].title.lower())))
    groups.append(("Project", [pathlib.PurePosixPath(p) for p in LAST if pathlib.PurePosixPath(p) in pages]))
    return [group for group in groups if group[1]]


def shell(path, title, body, page=None):
    """A whole HTML document at `path` of the site."""
    top = up(path)

    def entry(target, text):
        here = page is not None and page.path == target
        where = "index.html" if str(target) == "README.md" else address_of(target)
        sub = ""
        if here:
            parts = [f'<li><a href="#{a}">{html.escape(t)}</a></li>' for level, a, t in page.headings if level == 2]
            sub = f"<ul>{''.join(parts)}</ul>" if parts else ""
        return f'<li><a href="{top}{where}"{" class=here" if here else ""}>{html.escape(text)}</a>{sub}</li>'

    readme = pathlib.PurePosixPath("README.md")
    lists = "<ul>" + entry(readme, "specula") + (entry(INDEX, pages[INDEX].title) if INDEX in pages else "")
    lists += f'<li><a href="{top}reference/index.html">Reference</a></li></ul>'
    for group, paths in navigation_groups:
        lists += f"<h2>{html.escape(group)}</h2><ul>" + "".join(entry(p, pages[p].title) for p in paths) + "</ul>"
    full = title if title == "specula" else f"{title} - specula"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(full)}</title>
<link rel="stylesheet" href="{top}style.css">
</head>
<body>
<input type="checkbox" id="menu"><label for="menu">Menu</label>
<nav>{lists}</nav>
<main>
{body}</main>
</body>
</html>
"""


def write(path, text):
    path = site / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_files():
    """Copies what pages link, and writes the pages of sources and of folders."""
    for target in sorted(copied):
        if target.suffix in SHOWN:
            (site / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / target, site / target)
            continue
        text = (root / target).read_text()
        try:
            lexer = "cpp" if target.suffix in (".hpp", ".cuh") else pygments.lexers.guess_lexer_for_filename(target.name, text).aliases[0]
        except pygments.util.ClassNotFound:
            lexer = "bash" if text.startswith("#!") else "text"
        out = pathlib.PurePosixPath(f"{target}.html")
        write(out, shell(out, str(target), f"<h1>{target}</h1>{highlighted(text, lexer)}"))
    for folder in sorted(listed):
        out = folder / "index.html"
        items = []
        for child in sorted((root / folder).iterdir()):
            inner = pathlib.PurePosixPath(child.relative_to(root).as_posix())
            page = next((p for p in pages if p.parent == inner), inner if inner in pages else None)
            name = html.escape(child.name + ("/" if child.is_dir() else ""))
            items.append(f'<li><a href="{up(out)}{address_of(page)}">{name}</a></li>' if page else f"<li>{name}</li>")
        write(out, shell(out, str(folder), f"<h1>{folder}</h1><ul>{''.join(items)}</ul>"))


def style():
    def code(name, prefix):
        return pygments.formatters.HtmlFormatter(style=name, cssclass="code").get_style_defs(prefix)

    plain = (root / "docs/site/style.css").read_text()
    rules = re.compile(r"^\s*(?:background(?:-color)?:[^;}]*;?)", re.M)
    light, dark = code("default", ".code"), code("github-dark", ".code")
    light, dark = (re.sub(r"\.code \{[^}]*\}|^(?:pre|td|span)[^\n]*\n", "", rules.sub("", x), flags=re.M) for x in (light, dark))
    return f"{plain}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


# ---- links of the result

HREF = re.compile(r"<(?:a|link|img|source|script)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"", re.S)


def check_site():
    texts = {path: path.read_text(errors="replace") for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r"\b(?:id|name)=\"([^\"]*)\"", text)) for path, text in texts.items()}
    known = set()
    for path, text in texts.items():
        for address in HREF.findall(text):
            address = html.unescape(address)
            if re.match(r"[a-z][a-z0-9+.-]*:", address) or not address:
                continue
            target, _, anchor = address.partition("#")
            to = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(target))) if target else path
            if (to, anchor) in known:
                continue
            known.add((to, anchor))
            if not to.exists():
                problems.append(f"{path.relative_to(site)}: there is no {address}")
            elif anchor == "nested-classes":
                continue  # Doxygen has no such heading where all nested classes are private, but links it
            elif anchor and to in anchors and urllib.parse.unquote(anchor) not in anchors[to]:
                problems.append(f"{path.relative_to(site)}: nothing is at {address}")
    return len(texts), len(known)


def ask_outside():
    def ask(address):
        for method in ("HEAD", "GET"):
            try:
                request = urllib.request.Request(address, method=method, headers={"User-Agent": "Mozilla/5.0"})
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return None if answer.status < 400 else f"status {answer.status}"
            except Exception as error:  # of any kind: there is no answer
                result = str(error)
        return result

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for (address, where), trouble in zip(outside.items(), pool.map(ask, outside)):
            if trouble:
                problems.append(f"{where}: {address}: {trouble}")


pages = {}
for path in markdown_pages():
    pages[path] = Page(path)
for page in pages.values():
    check(page)
reference, reference_files = reference_names()
copied, listed = set(), set()
if not problems:
    navigation_groups = navigation()
    for path, page in pages.items():
        write(path.with_suffix(".html"), shell(path, page.title, rendered(page), page))
    front = pages[pathlib.PurePosixPath("README.md")]
    write("index.html", shell(front.path, front.title, rendered(front), front))
    write_files()
    write("style.css", style())
    count, links = check_site()
    print(f"{len(pages)} pages, {count} files of HTML, {links} links within, {len(outside)} to others{'' if '--links' in sys.argv else ' (not asked for)'}")
if "--links" in sys.argv:
    ask_outside()
for problem in problems:
    print(f"error: {problem}")
sys.exit(1 if problems else 0)
