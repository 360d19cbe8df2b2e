# SPDX-License-Identifier: MIT
"""Sphinx's options for the site that scripts/docs builds of all Markdown pages, which are on a forge what they are there.

The headings and links of docs/README.md are its navigation. Headers that pages link, and names of the library in `code`, lead to the
reference, which Doxygen has written before: to `reference/` and to `symbols.xml` in the folder of the site.
"""
import os
import pathlib
import re
import xml.etree.ElementTree

from docutils import nodes
from sphinx import addnodes

project = html_title = "specula"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "README"
highlight_language = "none"
exclude_patterns = ["build*", "shared", ".*"]
myst_heading_anchors = 6
html_theme = "furo"
html_copy_source = html_show_sphinx = html_show_copyright = False
templates_path, html_static_path = ["templates"], ["style.css", "tables.css", "site.js"]
html_css_files, html_js_files = ["style.css", "tables.css"], ["site.js"]
copybutton_prompt_text, copybutton_remove_prompts = "$ ", True
html_sidebars = {"**": [f"sidebar/{x}.html" for x in ("brand", "search", "scroll-start", "navigation", "reference", "scroll-end")]}
linkcheck_anchors, linkcheck_ignore = False, [r"(\.\./)*reference/"]
linkcheck_timeout = 30
names, headers = {}, {}  # of the library, and the pages of the reference that have them


def read_symbols(app):
    """Names without their namespaces; those of members only together with their types."""
    depth, file = {}, pathlib.Path(app.outdir, "symbols.xml")

    def add(name, page, shortest=1):
        parts = name.split("::")
        for i in range(len(parts) - shortest + 1):
            short = "::".join(parts[i:])
            if re.search("[A-Z_:]", short) and (len(parts), len(page), page) < depth.get(short, (99,)):
                names[short], depth[short] = page, (len(parts), len(page), page)

    for compound in xml.etree.ElementTree.parse(file).iter("compound") if file.exists() else []:
        kind, name, page = compound.get("kind"), compound.findtext("name"), compound.findtext("filename")
        if kind == "file":
            path = os.path.relpath(os.path.join(compound.findtext("path"), name), app.srcdir)
            headers[path] = page if page.endswith(".html") else f"{page}.html"
        elif kind in ("class", "struct", "concept", "namespace") and "detail" not in name.split("::"):
            if kind != "namespace":
                name = name.partition("<")[0]
                add(name, page)
            for member in compound.iter("member"):
                if member.get("kind") != "define":
                    where = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                    full = f"{name}::{member.findtext('name')}"
                    add(full, where, 1 if kind == "namespace" else 2)
                    for value in member.iter("enumvalue"):
                        add(f"{full}::{value.text}", where, 2)


def navigation(app, docname, source):
    """The front page also has the table of contents: docs/README.md's links below their headings, then all other pages."""
    if docname != root_doc:
        return
    index = pathlib.Path(app.srcdir, "docs/README.md")
    named, groups = [root_doc], [("Documentation", ["docs/README"])] if index.exists() else []
    for part in re.split("^## ", index.read_text(), flags=re.M)[1:] if groups else []:
        pages = [os.path.normpath(f"docs/{link}") for link in re.findall(r"\]\(([^)#:]*)\.md[)#]", part)]
        pages = [page for page in dict.fromkeys(pages) if page not in named]
        named += pages
        groups.append((part.partition("\n")[0], pages))
    rest = sorted(app.env.found_docs - {*named, "docs/README"})
    groups += [("More pages", [x for x in rest if not x.endswith("MODEL_CARD")]), ("Models", [x for x in rest if x.endswith("MODEL_CARD")])]
    for caption, pages in groups:
        titles = [f"{page.split('/')[-2]} <{page}>" if caption == "Models" else page for page in pages]
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {caption}", "", *titles, "```", ""]) * bool(pages)


def adapt(app, document):
    """Headers and names lead to the reference; pictures are marked that have colours of their own for a dark page."""
    docname = app.env.docname
    up = "../" * docname.count("/") + "reference/"
    for link in list(document.findall(addnodes.download_reference)):
        page = headers.get(os.path.normpath(os.path.join(os.path.dirname(docname), link["reftarget"])))
        if page:
            link.replace_self(nodes.reference("", "", *link.children, refuri=up + page, internal=True))
    for code in list(document.findall(nodes.literal)):
        name = re.fullmatch(r"(?:specula::)?([A-Za-z_]\w*(?:::\w+)*)(?:\(\)|<[\w:, ]*>)?", code.astext())
        inside = (nodes.reference, nodes.title, addnodes.pending_xref, addnodes.download_reference)
        if name and name[1] in names and not isinstance(code.parent, inside):
            code.replace_self(nodes.reference("", "", code.deepcopy(), refuri=up + names[name[1]], internal=True))
    for image in document.findall(nodes.image):
        file = pathlib.Path(app.srcdir, os.path.dirname(docname), image["uri"])
        if file.suffix == ".svg" and file.exists() and ("badge_" in file.name or "prefers-color-scheme" in file.read_text()):
            image["classes"].append("adapts")


def folder(app, env, node, text):
    """A forge shows folders; here a link to one is its text."""
    there = pathlib.Path(app.srcdir, os.path.dirname(node["refdoc"]), node["reftarget"]).is_dir()
    return text if there else None


def setup(app):
    app.connect("builder-inited", read_symbols)
    app.connect("source-read", navigation)
    app.connect("doctree-read", adapt, priority=100)  # before files are collected that pages link
    app.connect("missing-reference", folder)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
