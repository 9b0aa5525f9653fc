package sdk

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"
)

// Each exported name of the package has documentation, alone or with its group.
func TestEveryExportedNameHasDocumentation(t *testing.T) {
	files := token.NewFileSet()
	packages, err := parser.ParseDir(files, ".", func(file fs.FileInfo) bool { return !strings.HasSuffix(file.Name(), "_test.go") }, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	missing := undocumented(doc.New(packages["sdk"], "sdk", 0))
	if len(missing) > 0 {
		t.Errorf("without documentation: %s", strings.Join(missing, ", "))
	}
}

func TestAnExportedNameWithoutDocumentationIsFound(t *testing.T) {
	const source = "package sdk\n\n// A has some.\ntype A struct {\n\tField int\n}\n\nfunc B() {}\n\nfunc (A) C() {}\n\n// D has some.\ntype D interface{ E() }\n\nconst F = 1\n"
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "a.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := doc.NewFromFiles(files, []*ast.File{file}, "sdk")
	if err != nil {
		t.Fatal(err)
	}
	if missing := strings.Join(undocumented(parsed), " "); missing != "the package F B A.C A.Field D.E" {
		t.Errorf("found %q", missing)
	}
}

func undocumented(parsed *doc.Package) (missing []string) {
	note := func(name, text string) {
		if ast.IsExported(name[strings.LastIndexByte(name, '.')+1:]) && strings.TrimSpace(text) == "" {
			missing = append(missing, name)
		}
	}
	values := func(groups []*doc.Value) {
		for _, group := range groups {
			for _, spec := range group.Decl.Specs {
				value := spec.(*ast.ValueSpec)
				for _, name := range value.Names {
					note(name.Name, group.Doc+value.Doc.Text()+value.Comment.Text())
				}
			}
		}
	}
	functions := func(owner string, list []*doc.Func) {
		for _, function := range list {
			note(owner+function.Name, function.Doc)
		}
	}
	if strings.TrimSpace(parsed.Doc) == "" {
		missing = append(missing, "the package")
	}
	values(parsed.Consts)
	values(parsed.Vars)
	functions("", parsed.Funcs)
	for _, named := range parsed.Types {
		note(named.Name, named.Doc)
		values(named.Consts)
		values(named.Vars)
		functions("", named.Funcs)
		functions(named.Name+".", named.Methods)
		for _, spec := range named.Decl.Specs {
			var fields *ast.FieldList
			switch kind := spec.(*ast.TypeSpec).Type.(type) {
			case *ast.StructType:
				fields = kind.Fields
			case *ast.InterfaceType:
				fields = kind.Methods
			default:
				continue
			}
			before := ""
			for _, field := range fields.List {
				// One comment may describe adjacent fields.
				text := field.Doc.Text() + field.Comment.Text()
				if text == "" && before != "" && len(field.Names) > 0 && strings.Contains(before, field.Names[0].Name) {
					text = before
				}
				before = text
				for _, name := range field.Names {
					note(named.Name+"."+name.Name, text)
				}
			}
		}
	}
	return missing
}
