"""Hook of mkdocs.yml: pages refer to files of the tree outside of docs/, which then become part of the site.

Markdown files become pages; any other file is copied as it is, and a folder becomes a list of its files. Paths inside the site are those
of the tree, except that what lies in docs/ lies at the top.

docs/python-api.md keeps directives of mkdocstrings in comments, each in front of a sentence for readers of the file itself. The site
has the directive in the place of comment and sentence.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]]*\]\(|\bsrc(?:set)?=\")([^)#\s\"]+)((?:#[^)]*)?\)|\")")
DIRECTIVE = re.compile(r"^<!-- docstrings\n(.*?)\n-->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "bench/RESULTS.md")


def tree_path(page):
    """Where the page of the site with this path lies in the tree."""
    inside = posixpath.join("docs", page)
    return page if page in PAGES or not (ROOT / inside).exists() else inside


def site_path(path):
    return path.removeprefix("docs/") if path.startswith("docs/") else path


def targets(text, path):
    """(match, path in the tree) of each link of the file at `path` that leads to a file of the tree."""
    code = [match.span() for match in CODE.finditer(text)]
    for match in LINK.finditer(text):
        link = match.group(2)
        if "://" in link or link.startswith("mailto:") or any(begin <= match.start() < end for begin, end in code):
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        if not target.startswith(".."):
            yield match, target


def listing(folder):
    rows = [f"- [{path.name}]({path.name})" for path in sorted((ROOT / folder).iterdir()) if path.is_file()]
    return f"# {folder}\n\n" + "\n".join(rows) + "\n"


def on_files(files, config):
    waiting = [site_path(name) for name in PAGES] + [file.src_uri for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        path = tree_path(page)
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=(ROOT / path).read_text()))
        for _, target in targets((ROOT / path).read_text(), path):
            there, name = ROOT / target, site_path(target)
            if not there.exists() or files.get_file_from_path(name) is not None:
                continue
            if there.is_dir():
                if files.get_file_from_path(f"{name}/index.md") is None:
                    files.append(File.generated(config, f"{name}/index.md", content=listing(target)))
                    for file in there.iterdir():
                        if file.is_file() and files.get_file_from_path(f"{name}/{file.name}") is None:
                            files.append(File.generated(config, f"{name}/{file.name}", abs_src_path=str(file)))
            elif there.suffix == ".md":
                waiting.append(name)
            else:
                files.append(File.generated(config, name, abs_src_path=str(there)))
    return files


def on_page_markdown(markdown, page, config, files):
    markdown = DIRECTIVE.sub(r"\1", markdown)
    path = tree_path(page.file.src_uri)
    if not (ROOT / path).is_file():
        return markdown
    here = posixpath.dirname(page.file.src_uri)

    def moved(match, target):
        name = site_path(target)
        if (ROOT / target).is_dir():
            name += "/index.md"
        return match.group(1) + posixpath.relpath(name, here or ".") + match.group(3)

    parts, end = [], 0
    for match, target in targets(markdown, path):
        parts += [markdown[end:match.start()], moved(match, target)]
        end = match.end()
    return "".join(parts) + markdown[end:]
