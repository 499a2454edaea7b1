package ops

// Recorder is a [Device] that can note work instead of doing it, and then do it again and again: as a CUDA graph.
type Recorder interface {
	// Record notes the calls and copies on the device that f makes. What waits, allocates, or copies from or to the host is refused
	// meanwhile, so everything must have run once before.
	Record(f func() error) (Recording, error)
}

// Recording is work with the operands, shapes and scalars that it had, but not the contents of the device's memory.
type Recording interface {
	// Run does the work on what the device's memory then holds; ErrDevice once memory of the work was freed. It allocates nothing.
	Run() error
	// Close gives the recording back, after what was run before. A second Close does nothing.
	Close() error
}
