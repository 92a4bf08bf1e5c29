from clearformer.cli import main

main()
