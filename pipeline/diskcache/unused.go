package diskcache

import "errors"

// removeUnused makes room: it removes objects that no living mount uses, least recently used first,
// until there is permanent room for that many bytes.
func (k *keeper) removeUnused(least int64) {
	s := k.s
	all, err := s.dir.objects()
	if err != nil {
		s.failed("look for what nobody uses", err)
		return
	}
	used := int64(0)
	for i := range all {
		used += all[i].blocks
	}
	_, shared, _ := s.room.usage()
	good := s.room.goodBytes()
	most := good - max(least, roomMade(good))
	removed := 0
	for i := range all {
		if used-shared <= most {
			break
		}
		if s.isMine(all[i].key) {
			continue
		}
		gone, err := s.dir.remove(all[i].key)
		if err != nil && !errors.Is(err, errNotOur) {
			s.failed("remove what nobody uses", err)
			return
		}
		if gone {
			used -= all[i].blocks
			removed++
		}
	}
	if removed > 0 {
		s.config.Log.Info("objects that no mount uses were removed from the cache to make room", "dir", s.dir.path, "objects", removed)
	}
}

// roomMade returns how much room is made at least, so that it isn't done for each read.
func roomMade(bound int64) int64 { return min(bound/16, 256<<20) }

// trim frees pages of this mount's own objects, the last ones of each, if pages of a mount that was
// killed, or of a larger bound, leave no room for the share: without the share nothing new could be
// read chunk by chunk. Pages of the share that are on the disk meanwhile could be mistaken for such
// pages, so then it frees nothing.
func (k *keeper) trim() {
	s := k.s
	turn, unshared := s.room.unshared()
	if !unshared || !s.room.shares() {
		return
	}
	all, err := s.dir.objects()
	if err != nil {
		s.failed("make room for the share", err)
		return
	}
	over := -s.room.goodBytes()
	for i := range all {
		over += all[i].blocks
	}
	if now, unshared := s.room.unshared(); !unshared || now != turn {
		return
	}
	plain := s.plainKeys()
	for i := 0; i < len(all) && over > 0; i++ {
		if !s.isMine(all[i].key) || plain[all[i].key] {
			continue
		}
		freed, err := s.dir.trim(all[i].key, over)
		if err != nil {
			s.failed("make room for the share", err)
			return
		}
		over -= freed
	}
}

// trim frees about n bytes of an object's pages, its last ones, and returns how many.
func (c *directory) trim(k key, n int64) (freed int64, err error) {
	o, err := c.openStored(k)
	if err != nil {
		return 0, nil // it is damaged or gone, so it takes no room
	}
	defer o.close()
	for end := o.pages(); end > 0 && freed < n; {
		begin := max(0, end-sumsAtOnce)
		sums, err := o.readSums(run{begin, end})
		if err != nil {
			return freed, err
		}
		from := end
		for from > begin && freed < n {
			from--
			if sumOf(sums, from-begin) != 0 {
				freed += pageBytes
			}
		}
		if err := o.drop(run{from, end}); err != nil {
			return freed, err
		}
		end = from
	}
	return freed, nil
}
