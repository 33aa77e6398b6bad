// Command lsiofs mounts a dataset as shuffled training streams.
package main

func main() {}
