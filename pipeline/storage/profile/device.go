package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// device returns the kind and the name of a block device. Devices that consist of others (LVM,
// RAID, encryption) have the kind of the first of these.
func (m machine) device(major, minor uint32, layer int) (Kind, string) {
	dir, err := filepath.EvalSymlinks(filepath.Join(m.sys, "dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return KindUnknown, ""
	}
	name := filepath.Base(dir)
	return m.deviceAt(dir, layer), name
}

func (m machine) deviceAt(dir string, layer int) Kind {
	if _, err := os.Stat(filepath.Join(dir, "queue")); err != nil {
		dir = filepath.Dir(dir) // the disk of a partition
	}
	if layer < mostLayers {
		parts, _ := filepath.Glob(filepath.Join(dir, "slaves", "*"))
		for _, part := range parts {
			if real, err := filepath.EvalSymlinks(part); err == nil {
				return m.deviceAt(real, layer+1)
			}
		}
		if image := attribute(dir, "loop/backing_file"); image != "" {
			if p, err := m.look(image, layer+1); err == nil {
				return p.Kind
			}
		}
	}
	return kindOfDevice(dir, attribute(dir, "device/vendor")+" "+attribute(dir, "device/model"), attribute(dir, "queue/rotational"))
}

// attribute returns the text of a sysfs file, or "" if there is none.
func attribute(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// Signs of an emulated disk. The rotational attribute of such a disk can't be trusted: virtio's is
// set whatever the disk is on.
var (
	virtualBuses  = []string{"/virtio", "/vbd-", "/vmbus", "/xen"}
	virtualModels = []string{"qemu", "vmware", "vbox", "msft", "virtual", "google", "persistentdisk", "amazon elastic block store", "blockvolume", "xen"}
)

// kindOfDevice determines the kind of a disk from its directory in sysfs, vendor and model, and its
// rotational attribute.
func kindOfDevice(dir, model, rotational string) Kind {
	name := filepath.Base(dir)
	if strings.HasPrefix(name, "zram") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "pmem") {
		return KindMemory
	}
	if strings.HasPrefix(name, "nbd") || strings.HasPrefix(name, "rbd") || strings.HasPrefix(name, "drbd") {
		return KindNetwork
	}
	dir, model = strings.ToLower(dir), strings.ToLower(model)
	for _, bus := range virtualBuses {
		if strings.Contains(dir, bus) {
			return KindVirtual
		}
	}
	for _, sign := range virtualModels {
		if strings.Contains(model, sign) {
			return KindVirtual
		}
	}
	switch rotational {
	case "0":
		return KindSSD
	case "1":
		return KindDisk
	}
	return KindUnknown
}
