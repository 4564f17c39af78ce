// The reference library as a program: reads cases as JSON, one in each line, and prints what the library makes of each.
//
// It is not part of the build. To compare generated cases with the library, and to write tests/data/cdi-injection.jsonl
// anew:
//
//	mkdir oracle && cp tests/oracle/reference.go oracle/main.go && cd oracle && go mod init oracle
//	go get tags.cncf.io/container-device-interface@latest && go build
//	TRANCHE_CDI_REFERENCE=$PWD/oracle TRANCHE_BLESS=1 cargo test --test specs reference
//
// The file was written with commit 05ae4b5 (August 2026, after v1.1.0). v1.1.0 itself adds a variable that a container has
// already a second time. Containers with a user namespace are left out: newer versions mark their mounts as idmapped.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type question struct {
	Dirs    []string
	Devices []string
	Config  *oci.Spec
}

type answer struct {
	Error   string    `json:"error"`
	Devices []string  `json:"devices"`
	Config  *oci.Spec `json:"config"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		cache, err := cdi.NewCache(cdi.WithSpecDirs(q.Dirs...), cdi.WithAutoRefresh(false))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		a := answer{Devices: cache.ListDevices(), Config: q.Config}
		if _, err := cache.InjectDevices(q.Config, q.Devices...); err != nil {
			a.Error = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(line))
	}
}
