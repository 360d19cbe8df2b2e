"""The README's badges, which scripts/pages writes to docs/pictures/badge_NAME.svg from what the sources say. Standard library only."""
import re

SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{left}: {right}">
<title>{left}: {right}</title>
<rect width="{width}" height="20" rx="3" fill="#1f6feb"/>
<path d="M3 0h{split}v20h-{split}a3 3 0 0 1-3-3v-14a3 3 0 0 1 3-3z" fill="#57606a"/>
<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{x}" y="14" textLength="{left_length}">{left}</text>
<text x="{y}" y="14" textLength="{right_length}">{right}</text>
</g>
</svg>
"""


def badge(left, right):
    lengths = [round(6.4 * len(text)) for text in (left, right)]
    split = lengths[0] + 12
    width = split + lengths[1] + 12
    return SVG.format(left=left, right=right, width=width, split=split - 3, x=split / 2, y=(split + width) / 2, left_length=lengths[0],
                      right_length=lengths[1])


def badges(root):
    """Path to text, for all badges."""

    def found(path, pattern):
        return re.search(pattern, (root / path).read_text())[1]

    texts = {
        "cpp": ("C++", found("CMakeLists.txt", r"cxx_std_(\d+)")),
        "core": ("core", "header-only, no dependencies"),
        "compilers": ("compilers", "g++ {}+, clang {}+".format(*re.search(r"g\+\+ (\d+) or clang (\d+)", (root / "docs/support.md").read_text()).groups())),
        "cuda": ("CUDA", found("docs/support.md", r"(sm_\d+) \(Ampere\) and later") + "+"),
        "license": ("license", found("LICENSE", r"(MIT) License")),
        "version": ("version", ".".join(re.findall(r"VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (root / "include/specula/version.hpp").read_text()))),
    }
    return {f"docs/pictures/badge_{name}.svg": badge(*text) for name, text in texts.items()}
