#!/usr/bin/env python3
"""Every rule of check_layers.py fires on a tree that breaks it, and on no other."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_layers  # noqa: E402

TABLE = """
| rank | folder | may include | what lives there |
|---|---|---|---|
| 0 | base | | errors |
| 1 | comm | base | communicators |
| 2 | ops | base | kernels |
| 3 | main | all of the above | subcommands |
"""


class Rules(unittest.TestCase):
    def violations(self, **files):
        """Violations of a tree with these files; __ in a name stands for /, and it ends in .h or .cpp."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/layers.md").write_text(TABLE)
            files.setdefault("include__tandem__base__a_h", "#pragma once\n")
            for name, text in files.items():
                path = root / name.replace("__", "/").replace("_h", ".h").replace("_cpp", ".cpp")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check(root.resolve())[0]

    def fires(self, expected, **files):
        found = self.violations(**files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def silent(self, **files):
        self.assertEqual(self.violations(**files), [])

    def test_allowed_includes(self):
        self.silent(src__comm__x_cpp='#include "tandem/base/a.h"\n#include "tandem/comm/c.h"\n#include "y.h"\n',
                    src__comm__y_h="", include__tandem__comm__c_h="")
        self.silent(src__main__x_cpp='#include "tandem/ops/o.h"\n')

    def test_forbidden_include(self):
        self.fires("src/ops/x.cpp:2: ops may not include comm",
                   src__ops__x_cpp='\n#include "tandem/comm/c.h"\n')
        self.silent(src__ops__x_cpp='// #include "tandem/comm/c.h"\n')

    def test_cycle(self):
        found = self.violations(include__tandem__base__a_h='#include "tandem/comm/c.h"\n',
                                include__tandem__comm__c_h='#include "tandem/base/a.h"\n')
        self.assertTrue(any("folders include each other: base -> comm -> base" in v for v in found), found)

    def test_unknown_folders(self):
        self.fires("folder 'extra' is not in docs/layers.md", src__extra__x_cpp="")
        self.fires("folder nowhere is not in docs/layers.md", src__base__x_cpp='#include "tandem/nowhere/n.h"\n')

    def test_foreign_private_header(self):
        self.fires('"../ops/p.h" is no header of src/comm',
                   src__comm__x_cpp='#include "../ops/p.h"\n', src__ops__p_h="")
        self.fires('"missing.h" is no header', src__comm__x_cpp='#include "missing.h"\n')

    def test_generated_header(self):
        self.silent(**{"src__comm__x_cpp": '#include "made.h"\n', "src__comm__made_h.in": ""})

    def test_long_file(self):
        self.silent(src__base__x_cpp="\n" * 800)
        self.fires("801 lines", src__base__x_cpp="\n" * 801)

    def test_conditional_compilation(self):
        for directive in ("#ifdef X", "#if 1", "  # ifndef X"):
            self.fires("src/base/x.cpp:1: conditional compilation", src__base__x_cpp=directive + "\n#endif\n")
        self.fires("conditional", src__base__x_cpp="#if defined(TANDEM_X)\n#endif\n")
        self.fires("conditional", src__base__x_cpp="#if defined(__AVX2__) && X\n#endif\n")
        self.silent(src__base__x_cpp="#if defined(__A__) && !defined(__B__)\n#elif __C__\n#endif\n")
        self.silent(src__base__x_cpp="#if defined(__SSE4_2__)\n#endif\n#ifdef __x86_64__\n#endif\n")
        self.silent(src__base__x_cpp="// #ifdef X\n/*\n#if 1\n*/\n#define IF 1\n")

    def test_new_and_delete(self):
        self.fires("src/base/x.cpp:2: a new expression", src__base__x_cpp="\nauto p = new int;\n")
        self.fires("a delete expression", src__base__x_cpp="void f(int* p) { delete p; }\n")
        self.fires("a delete expression", src__base__x_cpp="void f(int* p) { delete[] p; }\n")
        self.silent(src__base__x_cpp="#include <new>\nvoid* p = ::operator new(1);\n"
                                     "void f() { ::operator delete(p); }\n")
        self.silent(src__base__x_cpp='struct S { S(const S&) = delete; S(S&&) =\n delete; int renew, new_x; };\n'
                                     '// new\nauto s = "new delete"; auto r = R"(new)"; int n = 1\'000; char c = \'"\'; // new\n')

    def test_wrapped_libraries(self):
        self.fires("MPI outside src/comm", src__ops__x_cpp="int x = MPI_Init(0, 0);\n")
        self.fires("CBLAS outside src/ops", src__comm__x_cpp="void f() { cblas_sgemm(); }\n")
        self.silent(src__comm__x_cpp="int x = MPI_Init(0, 0);\n", src__ops__x_cpp="void f() { cblas_sgemm(); }\n")

    def test_no_table_or_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/layers.md").write_text("nothing\n")
            self.assertEqual(len(check_layers.check(root)[0]), 2)


if __name__ == "__main__":
    unittest.main()
